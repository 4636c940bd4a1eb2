#include "paceline/nn/split_loss.h"

#include <ATen/ATen.h>

#include <numbers>

#include "paceline/base/error.h"
#include "paceline/graph/tensor_split.h"

namespace paceline::nn {

Scored SplitSoftmaxLoss::score(const at::Tensor& output, const at::Tensor& targets, double scale) const {
  return score(output, targets, smoothing_, scale, true);
}

at::Tensor SplitSoftmaxLoss::evaluate(const at::Tensor& output, const at::Tensor& targets) const {
  return score(output, targets, 0, 1, false).sums;
}

Scored SplitSoftmaxLoss::score(const at::Tensor& output, const at::Tensor& targets, double smoothing, double scale,
                               bool wants_gradient) const {
  at::NoGradGuard no_grad;
  const graph::Slice::Run own = graph::part_of(classes_, axis_.size(), axis_.rank());
  ensure(output.size(-1) == own.count, "a rank has the logits of its own classes");
  const bool half = output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
  const at::Tensor rows = output.reshape({-1, own.count});
  const at::Tensor labels = targets.reshape({-1, 1}) - own.first, others = labels.lt(0).logical_or_(labels.ge(own.count));
  labels.masked_fill_(others, 0);

  // Two tensors as large as the logits are alive at once, in fp32 (memory/activations.cpp): everything else is computed in place.
  const at::Tensor largest = axis_.max(rows.amax(1, true).to(half ? at::kFloat : rows.scalar_type()));
  at::Tensor shifted = half ? rows.to(at::kFloat).sub_(largest) : rows - largest;
  at::Tensor exponentials = shifted.is_cpu() ? (shifted * std::numbers::log2e).exp2_() : shifted.exp();  // see softmax_loss()
  at::Tensor sums = at::cat({exponentials.sum(1, true), shifted.gather(1, labels).masked_fill_(others, 0), shifted.sum(1, true)}, 1);
  sums = axis_.sum(sums);
  const at::Tensor log_sum = sums.narrow(1, 0, 1).log(), target = sums.narrow(1, 1, 1) - log_sum;  // log probability of the target

  Scored result;
  at::Tensor loss = target.sum(at::kDouble).mul_(smoothing - 1);
  if (smoothing > 0) {
    const at::Tensor all = sums.narrow(1, 2, 1).sum(at::kDouble) - log_sum.sum(at::kDouble) * static_cast<double>(classes_);
    loss.sub_(all, smoothing / static_cast<double>(classes_));
  }
  // The answer is the first of the most probable classes. The largest logit, shifted, is 0.
  const auto [best, place] = shifted.sub_(log_sum).max(1, true);
  const at::Tensor answer = axis_.min(at::where(best.eq(-log_sum), place + own.first, at::full_like(place, classes_)));
  const at::Tensor right = answer.eq(targets.reshape({-1, 1})).sum().to(at::kDouble);
  result.sums = at::stack({loss, right});
  if (!wants_gradient) return result;

  shifted.reset();
  at::Tensor gradient = exponentials.div_(sums.narrow(1, 0, 1));
  gradient.scatter_add_(1, labels, at::full_like(target, smoothing - 1).masked_fill_(others, 0));
  if (smoothing > 0) gradient.sub_(smoothing / static_cast<double>(classes_));
  gradient.mul_(scale);
  result.gradient = gradient.view(output.sizes()).to(output.scalar_type());
  return result;
}

}  // namespace paceline::nn
