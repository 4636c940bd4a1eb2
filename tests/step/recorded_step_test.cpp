// Which batches a recording serves. Built with CUDA only.
#include <gtest/gtest.h>

#if PACELINE_WITH_CUDA

#include <ATen/ATen.h>

#include "paceline/step/recorded_step.h"
#include "paceline/tensor/device.h"

namespace paceline::step {
namespace {

TEST(RecordedStepOnGpu, AShorterBatchNowAndThenLeavesTheRecording) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "no GPU here";
  const c10::Device device(at::kCUDA, 0);
  const tensor::OwnStream stream(device);
  const at::Tensor memory = at::ones({8}, at::TensorOptions(device)), sum = at::zeros({}, at::TensorOptions(device));
  const Batch whole{.inputs = memory, .targets = {}, .global_samples = 8},
      shorter{.inputs = memory.narrow(0, 0, 3), .targets = {}, .global_samples = 3};
  RecordedStep step(device, true);
  int calls = 0;
  const auto called = [&](const Batch& batch) {
    const int before = calls;
    step.run(batch, [&] { ++calls, sum.add_(batch.inputs.sum()); });
    return calls > before;
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(called(whole)) << i;  // three plain runs, and the recording
  EXPECT_FALSE(called(whole));
  EXPECT_TRUE(called(shorter));
  EXPECT_FALSE(called(whole)) << "the recording was lost";
  EXPECT_TRUE(called({.inputs = memory, .targets = at::ones({8}, at::TensorOptions(device)), .global_samples = 8})) << "targets elsewhere";
  EXPECT_FALSE(called(whole));
  EXPECT_EQ(sum.item<float>(), 8 * 8 + 3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(called(shorter)) << i;  // the first without the recording, and then as at the beginning
  EXPECT_FALSE(called(shorter));
  EXPECT_EQ(sum.item<float>(), 8 * 8 + 7 * 3);
}

TEST(RecordedStepOnGpu, ReturnsWhatTheReplayWrote) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "no GPU here";
  const c10::Device device(at::kCUDA, 0);
  const tensor::OwnStream stream(device);
  at::Tensor memory = at::zeros({8}, at::TensorOptions(device));
  const Batch whole{.inputs = memory, .targets = {}, .global_samples = 8},
      shorter{.inputs = memory.narrow(0, 0, 3), .targets = {}, .global_samples = 3};
  RecordedStep step(device, true);
  const auto sum_of = [&](const Batch& batch, float value) {
    memory.fill_(value);
    return step.result(batch, [&] { return batch.inputs.sum(); }).item<float>();
  };
  for (int i = 1; i < 6; ++i) EXPECT_EQ(sum_of(whole, i), 8 * i) << i;
  EXPECT_EQ(sum_of(shorter, 6), 3 * 6);
  for (int i = 7; i < 9; ++i) EXPECT_EQ(sum_of(whole, i), 8 * i) << "after a shorter batch";
}

}  // namespace
}  // namespace paceline::step

#endif
