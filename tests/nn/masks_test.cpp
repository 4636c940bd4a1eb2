#include "paceline/nn/masks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::nn {
namespace {

class MasksOf : public testing::TestWithParam<c10::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == c10::kCUDA && !tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
    masks_ = make_masks(c10::Device(GetParam(), GetParam() == c10::kCUDA ? 0 : -1));
  }
  at::Tensor ones(const std::vector<std::int64_t>& shape, at::ScalarType type = at::kFloat) const {
    return at::ones(shape, at::TensorOptions().dtype(type).device(GetParam()));
  }
  at::Tensor drawn(std::uint64_t seed, const at::Tensor& values, const MaskPart& part = {}, double keep = 0.8) const {
    masks_->seed(seed);
    return masks_->draw(values, part, keep);
  }

  std::unique_ptr<Masks> masks_;
};

TEST_P(MasksOf, KeepTheShareThatTheyAreTold) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor mask = drawn(1, ones({100, 1000}, type), {}, 0.7).to(at::kDouble).cpu();
    EXPECT_NEAR(mask.ne(0).to(at::kDouble).mean().item<double>(), 0.7, 0.01);
    EXPECT_NEAR(mask.max().item<double>(), 1 / 0.7, 1e-2);
    EXPECT_NEAR(mask.ne(0).to(at::kDouble).mean(0).std().item<double>(), std::sqrt(0.7 * 0.3 / 100), 0.01) << "columns are independent";
  }
}

TEST_P(MasksOf, DependOnTheSeedAlone) {
  const at::Tensor values = ones({7, 33});
  const at::Tensor first = drawn(5, values);
  EXPECT_FALSE(at::equal(drawn(6, values), first));
  EXPECT_TRUE(at::equal(drawn(5, values), first));
  EXPECT_FALSE(at::equal(masks_->draw(values, {}, 0.8), first)) << "the next mask of the same layer";
}

TEST_P(MasksOf, PartsAreThoseOfTheWhole) {
  for (const std::int64_t dim : {0, 1, 2}) {
    const std::vector<std::int64_t> shape = {4, 6, 8};
    const std::int64_t all = shape[static_cast<std::size_t>(dim)], first = all / 4, count = all / 2;
    const at::Tensor whole = drawn(5, ones(shape)), part = ones(shape).narrow(dim, first, count).contiguous();
    EXPECT_TRUE(at::equal(drawn(5, part, {.dim = dim, .all = all, .first = first, .count = count}), whole.narrow(dim, first, count)));
  }
}

TEST_P(MasksOf, KeepTheLayoutOfWhatTheyMask) {
  const at::Tensor values = ones({2, 8, 4, 4});
  const at::Tensor last = values.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(drawn(3, last).strides(), last.strides());
}

TEST_P(MasksOf, ChangeWithTheStepEvenWhereTheyAreRecorded) {
  const at::Tensor values = ones({64, 64});
  const bool recorded = GetParam() == c10::kCUDA;
  const tensor::OwnStream stream(values.device());  // a recording needs one
  tensor::Recorded pass(values.device(), recorded);
  at::Tensor mask;
  std::vector<at::Tensor> masks;
  for (std::int64_t step = 1; step <= 8; ++step) {
    const std::uint64_t seed = masks_->begin_step(step);
    pass.run([&] { mask = drawn(100 + seed, values); });
    masks.push_back(mask.clone());
    for (std::size_t earlier = 0; earlier + 1 < masks.size(); ++earlier) EXPECT_FALSE(at::equal(masks[earlier], masks.back())) << step;
  }
  for (std::int64_t step = 1; step <= 8; ++step)
    EXPECT_TRUE(at::equal(drawn(100 + masks_->begin_step(step), values), masks[static_cast<std::size_t>(step - 1)])) << step;
}

INSTANTIATE_TEST_SUITE_P(Devices, MasksOf, testing::Values(c10::kCPU, c10::kCUDA),
                         [](const auto& test) { return std::string(test.param == c10::kCPU ? "Cpu" : "Cuda"); });

}  // namespace
}  // namespace paceline::nn
