// Feedback of tensors has the bits of compress::Feedback.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "paceline/data_parallel/tensor_feedback.h"

namespace paceline::data_parallel {
namespace {

constexpr std::int64_t kCount = 1000;

float* floats(const torch::Tensor& tensor) { return tensor.data_ptr<float>(); }

/// Both sides take the same steps, in each of which every third value is sent.
void expect_the_same(const std::string& compressor, const compress::CompressConfig& settings, double tolerance) {
  const auto& row = find(compress::compressors(), "compressor", compressor).make;
  const compress::Feedback feedback(row, settings, /*momentum=*/0.9, /*workers=*/2, /*length=*/3 * kCount);
  const torch::Tensor residual = torch::zeros(kCount), velocity = torch::zeros(kCount);
  const KeptTensors kept{.residual = torch::zeros(kCount), .velocity = feedback.has_velocity() ? torch::zeros(kCount) : torch::Tensor()};
  for (int step = 0; step < 4; ++step) {
    const torch::Tensor gradient = torch::arange(kCount).add(200 * step).mul(0.37).sin();
    feedback.add(floats(gradient), {.residual = floats(residual), .velocity = floats(velocity), .count = kCount});
    add_gradient(feedback, gradient, kept);
    EXPECT_TRUE(torch::allclose(kept.residual, residual, tolerance, tolerance)) << compressor << ", step " << step;
    for (const torch::Tensor& either : {residual, kept.residual}) either.slice(0, step, kCount, 3).zero_();
    feedback.said({.residual = floats(residual), .velocity = floats(velocity), .count = kCount});
    forget_sent(feedback, kept);
    EXPECT_TRUE(torch::allclose(kept.residual, residual, tolerance, tolerance)) << compressor << ", step " << step;
    if (!feedback.has_velocity()) continue;
    EXPECT_TRUE(torch::allclose(kept.velocity, velocity, tolerance, tolerance)) << "step " << step;
  }
}

TEST(TensorFeedback, AddsUp) { expect_the_same("topk", {}, 0); }
TEST(TensorFeedback, KeepsNothingWhereItIsOff) { expect_the_same("int8", {.feedback = "off"}, 0); }
TEST(TensorFeedback, OfDgcAddsVelocities) { expect_the_same("dgc", {}, 0); }
TEST(TensorFeedback, OfDgcClipsToTheSameNorm) { expect_the_same("dgc", {.dgc_clip = 3}, 1e-5); }
TEST(TensorFeedback, OfDgcLeavesShortGradients) { expect_the_same("dgc", {.dgc_clip = 1e6}, 0); }

}  // namespace
}  // namespace paceline::data_parallel
