// Softmax with cross entropy against LibTorch's own, and the count of right answers.
#include "paceline/nn/loss.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "paceline/tensor/device.h"

namespace paceline::nn {
namespace {

namespace F = torch::nn::functional;

struct Batch {
  at::Tensor logits, targets;
};

Batch make_batch(std::vector<std::int64_t> samples, std::int64_t classes, c10::ScalarType type = at::kFloat) {
  torch::manual_seed(21);
  const at::Tensor targets = at::randint(classes, samples, at::kLong);
  samples.push_back(classes);
  return {(3 * at::randn(samples)).to(type), targets};
}

class SoftmaxLossValues : public testing::TestWithParam<double> {};

TEST_P(SoftmaxLossValues, EqualsLibTorchs) {
  const double smoothing = GetParam(), scale = 0.37;
  for (const std::vector<std::int64_t>& samples : {std::vector<std::int64_t>{1}, {7}, {3, 4}}) {
    const Batch batch = make_batch(samples, 5, at::kDouble);
    const at::Tensor leaf = batch.logits.clone().requires_grad_();
    const at::Tensor expected = F::cross_entropy(leaf.reshape({-1, 5}), batch.targets.flatten(),
                                                 F::CrossEntropyFuncOptions().label_smoothing(smoothing).reduction(torch::kSum));
    (scale * expected).backward();
    const Scored scored = softmax_loss(batch.logits, batch.targets, smoothing, scale, true);
    EXPECT_EQ(scored.sums.scalar_type(), at::kDouble);
    EXPECT_NEAR(scored.sums[0].item<double>(), expected.item<double>(), 1e-10) << "the sum is not scaled";
    EXPECT_EQ(scored.gradient.sizes(), batch.logits.sizes());
    EXPECT_TRUE(at::allclose(scored.gradient, leaf.grad(), 1e-10, 1e-12));
    EXPECT_LT(scored.gradient.sum(-1).abs().max().item<double>(), 1e-12) << "logits move against each other";
  }
}

TEST_P(SoftmaxLossValues, LeavesTheLogitsAlone) {
  const Batch batch = make_batch({4}, 3);
  const at::Tensor kept = batch.logits.clone();
  softmax_loss(batch.logits, batch.targets, GetParam(), 1, true);
  EXPECT_TRUE(at::equal(batch.logits, kept));
}

INSTANTIATE_TEST_SUITE_P(, SoftmaxLossValues, testing::Values(0.0, 0.1, 0.5));

TEST(SoftmaxLossDetails, CountsRightAnswers) {
  const at::Tensor logits = at::tensor({1.f, 2.f, 3.f, 9.f, 0.f, -1.f, -5.f, -4.f, -6.f, 0.f, 7.f, 0.f}).view({4, 3});
  EXPECT_EQ(softmax_loss(logits, at::tensor({2, 0, 1, 1}, at::kLong), 0, 1, false).sums[1].item<double>(), 4);
  EXPECT_EQ(softmax_loss(logits, at::tensor({2, 1, 1, 0}, at::kLong), 0.1, 1, true).sums[1].item<double>(), 2);
  EXPECT_EQ(softmax_loss(logits.view({2, 2, 3}), at::tensor({0, 1, 0, 0}, at::kLong).view({2, 2}), 0, 1, true).sums[1].item<double>(), 0);
}

TEST(SoftmaxLossDetails, GivesNoGradientWhereNoneIsWanted) {
  const Batch batch = make_batch({4}, 3);
  const Scored without = softmax_loss(batch.logits, batch.targets, 0.1, 1, false),
               with = softmax_loss(batch.logits, batch.targets, 0.1, 1, true);
  EXPECT_FALSE(without.gradient.defined());
  EXPECT_TRUE(at::equal(without.sums, with.sums));
}

TEST(SoftmaxLossDetails, SurvivesHugeLogits) {
  const at::Tensor logits = at::tensor({1e30f, -1e30f, 0.f, -3e4f, 3e4f, 0.f}).view({2, 3});
  const Scored scored = softmax_loss(logits, at::tensor({0, 1}, at::kLong), 0, 1, true);
  EXPECT_NEAR(scored.sums[0].item<double>(), 0, 1e-6);
  EXPECT_EQ(scored.gradient.abs().max().item<float>(), 0);
}

TEST(SoftmaxLossDetails, ComputesInSinglePrecisionForBfloat16) {
  const Batch batch = make_batch({6}, 10, at::kBFloat16);
  const Scored half = softmax_loss(batch.logits, batch.targets, 0.1, 1, true);
  const Scored single = softmax_loss(batch.logits.to(at::kFloat), batch.targets, 0.1, 1, true);
  EXPECT_TRUE(at::equal(half.sums, single.sums));
  EXPECT_EQ(half.gradient.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(half.gradient, single.gradient.to(at::kBFloat16)));
}

TEST(SoftmaxLossDetails, OfManyRowsIsTheSumOfItsChunks) {
  const Batch batch = make_batch({5}, 1 << 20, at::kBFloat16);  // more logits than a chunk takes
  const Scored together = softmax_loss(batch.logits, batch.targets, 0.1, 0.5, true);
  at::Tensor sums = at::zeros({2}, at::kDouble);
  for (std::int64_t row = 0; row < 5; ++row) {
    const Scored alone = softmax_loss(batch.logits.narrow(0, row, 1), batch.targets.narrow(0, row, 1), 0.1, 0.5, true);
    sums += alone.sums;
    EXPECT_TRUE(at::equal(together.gradient[row], alone.gradient[0])) << row;
  }
  EXPECT_TRUE(at::allclose(together.sums, sums, 1e-12));
}

TEST(SoftmaxLossDetails, OnAGpuEqualsTheCpus) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const std::int64_t classes : {10, 1003, 50304}) {
      const Batch batch = make_batch({3, 7}, classes, type);
      batch.logits[0][0].fill_(-1), batch.targets[0][0].fill_(0);  // the first of equal ones is the answer
      for (const double smoothing : {0.0, 0.1}) {
        const Scored cpu = softmax_loss(batch.logits, batch.targets, smoothing, 0.3, true);
        const Scored gpu = softmax_loss(batch.logits.cuda(), batch.targets.cuda(), smoothing, 0.3, true);
        EXPECT_NEAR(gpu.sums[0].item<double>(), cpu.sums[0].item<double>(), 1e-4) << classes;
        EXPECT_EQ(gpu.sums[1].item<double>(), cpu.sums[1].item<double>()) << classes;
        EXPECT_LT((gpu.gradient.cpu() - cpu.gradient).abs().max().item<double>(), type == at::kFloat ? 1e-6 : 2e-3) << classes;
        EXPECT_TRUE(at::equal(softmax_loss(batch.logits.cuda(), batch.targets.cuda(), smoothing, 0.3, false).sums, gpu.sums));
      }
    }
}

TEST(SoftmaxLossDetails, OfATargetThatIsNoClassIsNotANumberOnAGpu) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  const Batch batch = make_batch({4}, 16);
  batch.targets[2].fill_(16);
  EXPECT_TRUE(std::isnan(softmax_loss(batch.logits.cuda(), batch.targets.cuda(), 0, 1, true).sums[0].item<double>()));
}

TEST(SoftmaxLossDetails, OfOneClassIsNothing) {
  const Scored scored = softmax_loss(at::randn({3, 1}), at::zeros({3}, at::kLong), 0.1, 1, true);
  EXPECT_EQ(scored.sums[0].item<double>(), 0);
  EXPECT_EQ(scored.sums[1].item<double>(), 3);
  EXPECT_LT(scored.gradient.abs().max().item<float>(), 1e-6);
}

}  // namespace
}  // namespace paceline::nn
