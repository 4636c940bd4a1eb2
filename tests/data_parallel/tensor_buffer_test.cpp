// Tensors in collectives, as a user writes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "paceline/comm/engine.h"
#include "tests/message_of.h"

namespace paceline::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr struct {
  at::ScalarType torch;
  DType ours;
} kTypes[] = {{at::kByte, DType::u8},  {at::kChar, DType::i8},   {at::kInt, DType::i32},    {at::kLong, DType::i64},
              {at::kHalf, DType::f16}, {at::kFloat, DType::f32}, {at::kDouble, DType::f64}, {at::kBFloat16, DType::bf16}};

TEST(TensorBuffer, HasTheTensorsTypeAndMemory) {
  ASSERT_EQ(std::size(kTypes), std::size(kDTypes)) << "every type that collectives know has a tensor";
  for (const auto& type : kTypes) {
    const at::Tensor tensor = at::zeros({3, 5}, type.torch);
    const Buffer buffer = tensor;
    EXPECT_EQ(buffer.dtype, type.ours);
    EXPECT_EQ(buffer.data, tensor.data_ptr());
    EXPECT_EQ(buffer.count, 15);
    EXPECT_EQ(buffer.bytes(), static_cast<std::int64_t>(tensor.nbytes()));
  }
  const at::Tensor tensor = at::zeros({4, 5});
  EXPECT_EQ(Buffer(tensor[2]).data, tensor.data_ptr<float>() + 10) << "a view that lies side by side";
}

TEST(TensorBuffer, IsReducedInPlace) {
  auto group = local_group(2);
  std::vector<std::thread> threads;
  std::vector<at::Tensor> tensors{at::arange(6).to(at::kFloat).view({2, 3}), at::ones({2, 3})};
  for (std::size_t i = 0; i < 2; ++i) threads.emplace_back([&, i] { group[i]->run(allreduce(tensors[i], {.op = ReduceOp::mean})); });
  for (auto& thread : threads) thread.join();
  for (const at::Tensor& tensor : tensors) EXPECT_TRUE(at::equal(tensor, (at::arange(6).to(at::kFloat).view({2, 3}) + 1) / 2));
}

TEST(TensorBuffer, RefusesWhatNoCollectiveCarries) {
  const auto refusal = [](const at::Tensor& tensor) { return message_of<ConfigError>([&] { static_cast<void>(Buffer(tensor)); }); };
  EXPECT_THAT(refusal(at::zeros({2, 3}, at::kBool)), AllOf(HasSubstr("Bool"), HasSubstr("tensor.to(")));
  EXPECT_THAT(refusal(at::zeros({2}, at::kComplexFloat)), HasSubstr("ComplexFloat"));
  EXPECT_THAT(refusal(at::zeros({2, 3}).t()), HasSubstr("tensor.contiguous()"));
  EXPECT_THAT(refusal(at::empty({2}, at::TensorOptions(at::kMeta))), HasSubstr("tensor.cpu()"));
  EXPECT_THAT(refusal(at::Tensor()), HasSubstr("undefined tensor"));
}

}  // namespace
}  // namespace paceline::comm
