// Attention in blocks and by LibTorch's kernels, against the whole matrix of scores under autograd.
#include "paceline/nn/attention.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "paceline/nn/blocked_attention.h"
#include "paceline/tensor/device.h"

namespace paceline::nn {
namespace {

constexpr std::int64_t kSequences = 2, kHeads = 3;

/// The way that writes the whole matrix down: [batch · T, heads · head] from [batch, T, 3, heads, head].
at::Tensor whole_attention(const at::Tensor& qkv, bool causal) {
  const at::Tensor q = qkv.select(2, 0).transpose(1, 2), k = qkv.select(2, 1).transpose(1, 2), v = qkv.select(2, 2).transpose(1, 2);
  const std::int64_t time = qkv.size(1);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(qkv.size(4)));
  if (causal) {
    const at::Tensor future = at::ones({time, time}, qkv.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
  }
  return at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({qkv.size(0) * time, -1});
}

struct AttentionSize {
  std::int64_t time, head;
  bool causal;
};

at::Tensor random_qkv(const AttentionSize& size, at::ScalarType type) {
  torch::manual_seed(5);
  return at::randn({kSequences, size.time, 3, kHeads, size.head}, at::kDouble).to(type);
}

AttentionForm form_of(const AttentionSize& size, double keep = 1) {
  return {.causal = size.causal, .keep = keep, .first = 0, .all_heads = kHeads};
}

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kCPU, at::kDouble), y = b.to(at::kCPU, at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

class AttentionOfSizes : public testing::TestWithParam<AttentionSize> {
 protected:
  /// Output and gradient of the whole matrix, in double.
  void SetUp() override {
    const at::Tensor leaf = random_qkv(GetParam(), at::kDouble).requires_grad_();
    expected_ = whole_attention(leaf, GetParam().causal);
    by_output_ = at::randn_like(expected_);
    (expected_ * by_output_).sum().backward();
    gradient_ = leaf.grad();
  }

  void expect_agreement(const c10::Device& device, at::ScalarType type, double tolerance) {
    const at::Tensor qkv = random_qkv(GetParam(), type).to(device);
    Pass pass;
    Tensors saved;
    const at::Tensor mixed = attend(qkv, form_of(GetParam()), pass, saved);
    EXPECT_LT(relative_distance(mixed, expected_), tolerance) << type;
    const at::Tensor gradient = attend_back(by_output_.to(device, type), qkv, mixed, form_of(GetParam()), pass, saved);
    EXPECT_EQ(gradient.sizes(), qkv.sizes());
    EXPECT_LT(relative_distance(gradient, gradient_), 2 * tolerance) << type;
    for (const at::Tensor& kept : saved)
      EXPECT_LE(kept.numel(), kSequences * kHeads * (GetParam().time + 128)) << "grows with the context, not with its square";
  }

  at::Tensor expected_, by_output_, gradient_;
};

TEST_P(AttentionOfSizes, InBlocksEqualsTheWholeMatrix) {
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, 2e-6), std::pair(at::kBFloat16, 2e-2)}) {
    const at::Tensor qkv = random_qkv(GetParam(), type);
    Pass pass;
    Tensors saved;
    const at::Tensor mixed = blocked_attention(qkv, form_of(GetParam()), pass, saved);
    EXPECT_TRUE(saved.empty()) << "q and k give the weights again";
    EXPECT_LT(relative_distance(mixed, expected_), tolerance) << type;
    const at::Tensor gradient = blocked_attention_back(by_output_.to(type), qkv, form_of(GetParam()), pass, saved);
    EXPECT_LT(relative_distance(gradient, gradient_), 2 * tolerance) << type;
  }
}

TEST_P(AttentionOfSizes, AsLayersComputeItEqualsTheWholeMatrix) {
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, 2e-6), std::pair(at::kBFloat16, 2e-2)})
    expect_agreement(c10::kCPU, type, tolerance);
}

TEST_P(AttentionOfSizes, OnAGpuEqualsTheWholeMatrix) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  const c10::Device device(c10::kCUDA, 0);
  for (const bool repeatable : {true, false}) {  // other kernels
    tensor::configure_libtorch(device, tensor::Precision::fp32, 1, repeatable);
    for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 2e-2)})
      expect_agreement(device, type, tolerance);
  }
}

TEST_P(AttentionOfSizes, RepeatsItsBitsOnAGpu) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  const c10::Device device(c10::kCUDA, 0);
  tensor::configure_libtorch(device, tensor::Precision::bf16, 1, /*repeatable=*/true);
  const at::Tensor qkv = random_qkv(GetParam(), at::kBFloat16).to(device), by_output = by_output_.to(device, at::kBFloat16);
  Pass pass;
  Tensors saved;
  const at::Tensor mixed = attend(qkv, form_of(GetParam()), pass, saved);
  const at::Tensor first = attend_back(by_output, qkv, mixed, form_of(GetParam()), pass, saved);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::equal(attend_back(by_output, qkv, mixed, form_of(GetParam()), pass, saved), first));
}

// Shorter than a block, a whole one, several with a rest; a head size that no kernel takes, and one that cuDNN takes.
INSTANTIATE_TEST_SUITE_P(, AttentionOfSizes,
                         testing::Values(AttentionSize{5, 8, true}, AttentionSize{64, 8, true}, AttentionSize{150, 16, true},
                                         AttentionSize{150, 16, false}, AttentionSize{67, 6, true}, AttentionSize{1, 8, true},
                                         AttentionSize{128, 64, true}),
                         [](const auto& row) {
                           return std::to_string(row.param.time) + "x" + std::to_string(row.param.head) +
                                  (row.param.causal ? "_causal" : "_whole");
                         });

class AttentionWithDropout : public testing::TestWithParam<bool> {
 protected:
  static constexpr AttentionSize kSize{.time = 150, .head = 150, .causal = true};
  static constexpr double kKeep = 0.7;

  void begin() const {  // as a layer's pass begins, and its backward pass again
    if (GetParam()) masks_->seed(9);
    else torch::manual_seed(9);
  }
  at::Tensor forward(const at::Tensor& qkv, Tensors& saved) const {
    begin();
    return attend(qkv, form_of(kSize, kKeep), pass(), saved);
  }
  Pass pass() const {
    Pass pass;
    if (GetParam()) pass.masks = masks_.get();
    return pass;
  }

  std::unique_ptr<Masks> masks_ = make_masks(c10::kCPU);
};

TEST_P(AttentionWithDropout, DropsWeightsOfEveryBlockAndScalesTheRest) {
  at::Tensor qkv = random_qkv(kSize, at::kDouble);
  qkv.select(2, 2).copy_(at::eye(kSize.time, at::kDouble).unsqueeze(1).unsqueeze(0));  // values that show the weights themselves
  Tensors saved;
  const auto weights = [&](const at::Tensor& mixed) { return mixed.view({kSequences, kSize.time, kHeads, kSize.time}); };
  const at::Tensor all = weights(whole_attention(qkv, true)), used = weights(forward(qkv, saved));
  const at::Tensor kept = used.ne(0), past = all.ne(0);
  EXPECT_TRUE(at::allclose(used, all / kKeep * kept));
  EXPECT_NEAR(kept.sum().item<double>() / past.sum().item<double>(), kKeep, 0.01);
  for (const std::int64_t row : {0, 70, 149})  // in each of the blocks
    EXPECT_EQ(kept.select(1, row).logical_and(past.select(1, row).logical_not()).sum().item<std::int64_t>(), 0);
  EXPECT_FALSE(at::equal(kept.select(2, 0), kept.select(2, 1))) << "heads have masks of their own";
}

TEST_P(AttentionWithDropout, GradientsAreThoseOfTheMasksOfTheForwardPass) {
  const at::Tensor qkv = random_qkv(kSize, at::kDouble), direction = at::randn_like(qkv);
  Tensors saved, unused;
  const at::Tensor mixed = forward(qkv, saved), by_output = at::randn_like(mixed);
  begin();
  const at::Tensor gradient = attend_back(by_output, qkv, mixed, form_of(kSize, kKeep), pass(), saved);
  constexpr double kStep = 1e-6;
  const at::Tensor above = forward(qkv + kStep * direction, unused), below = forward(qkv - kStep * direction, unused);
  const double slope = ((above - below) * by_output).sum().item<double>() / (2 * kStep);
  EXPECT_NEAR((gradient * direction).sum().item<double>(), slope, 1e-6 * std::abs(slope));
  EXPECT_EQ(saved.empty(), GetParam()) << "masks that can be drawn again are not kept";
}

TEST_P(AttentionWithDropout, EvaluatesWithout) {
  const at::Tensor qkv = random_qkv(kSize, at::kDouble);
  Pass evaluation = pass();
  evaluation.training = false;
  Tensors saved;
  EXPECT_TRUE(at::allclose(attend(qkv, form_of(kSize, kKeep), evaluation, saved), whole_attention(qkv, true)));
}

INSTANTIATE_TEST_SUITE_P(, AttentionWithDropout, testing::Bool(), [](const auto& row) { return row.param ? "masks" : "generator"; });

TEST(AttentionOfHalfTheHeads, DropsWhatAllWouldDrop) {
  const AttentionSize size{.time = 70, .head = 4, .causal = true};
  const at::Tensor qkv = random_qkv(size, at::kDouble);
  const auto masks = make_masks(c10::kCPU);
  Pass pass;
  pass.masks = masks.get();
  const auto mixed = [&](const at::Tensor& heads, std::int64_t first) {
    Tensors saved;
    masks->seed(4);
    const AttentionForm form{.causal = true, .keep = 0.6, .first = first, .all_heads = kHeads};
    return attend(heads, form, pass, saved).view({kSequences, size.time, -1, size.head});
  };
  const at::Tensor all = mixed(qkv, 0), last = mixed(qkv.narrow(3, 1, 2).contiguous(), 1);
  EXPECT_TRUE(at::allclose(last, all.narrow(2, 1, 2)));
}

TEST(AttentionScores, ThatAreNotFiniteShowInTheOutput) {
  at::Tensor qkv = random_qkv({.time = 9, .head = 8, .causal = true}, at::kFloat);
  qkv[0][4][0][0][0] = std::numeric_limits<float>::quiet_NaN();  // one query
  Tensors saved;
  const at::Tensor mixed = blocked_attention(qkv, {.causal = true, .all_heads = kHeads}, {}, saved);
  EXPECT_TRUE(mixed[4].narrow(0, 0, 8).isnan().all().item<bool>());
  EXPECT_FALSE(mixed[3].isnan().any().item<bool>());
}

}  // namespace
}  // namespace paceline::nn
