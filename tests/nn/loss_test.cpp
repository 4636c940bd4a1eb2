// Softmax with cross entropy against LibTorch's own, and the count of right answers.
#include "paceline/nn/loss.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

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

TEST(SoftmaxLossDetails, OfOneClassIsNothing) {
  const Scored scored = softmax_loss(at::randn({3, 1}), at::zeros({3}, at::kLong), 0.1, 1, true);
  EXPECT_EQ(scored.sums[0].item<double>(), 0);
  EXPECT_EQ(scored.sums[1].item<double>(), 3);
  EXPECT_LT(scored.gradient.abs().max().item<float>(), 1e-6);
}

}  // namespace
}  // namespace paceline::nn
