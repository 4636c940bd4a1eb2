#include "paceline/nn/loss.h"

#include <ATen/ATen.h>

namespace paceline::nn {

Scored softmax_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing, double scale, bool wants_gradient) {
  at::NoGradGuard no_grad;
  const std::int64_t classes = logits.size(-1);
  const bool half = logits.scalar_type() == at::kBFloat16 || logits.scalar_type() == at::kHalf;
  const at::Tensor rows = (half ? logits.to(at::kFloat) : logits).reshape({-1, classes});
  const at::Tensor labels = targets.reshape({-1, 1});
  at::Tensor log_probabilities = at::log_softmax(rows, 1);

  Scored result;
  at::Tensor loss = log_probabilities.gather(1, labels).sum(at::kDouble).mul_(smoothing - 1);
  if (smoothing > 0) loss.sub_(log_probabilities.sum(at::kDouble), smoothing / static_cast<double>(classes));
  const at::Tensor right = log_probabilities.argmax(1, true).eq(labels).sum().to(at::kDouble);
  result.sums = at::stack({loss, right});
  if (!wants_gradient) return result;

  at::Tensor gradient = log_probabilities.exp_();
  gradient.scatter_add_(1, labels, at::full({1, 1}, smoothing - 1, gradient.options()).expand_as(labels));
  if (smoothing > 0) gradient.sub_(smoothing / static_cast<double>(classes));
  gradient.mul_(scale);
  result.gradient = gradient.view(logits.sizes()).to(logits.scalar_type());
  return result;
}

}  // namespace paceline::nn
