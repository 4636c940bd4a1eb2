#include "paceline/data_parallel/tensor_feedback.h"

#include <ATen/ATen.h>

namespace paceline::data_parallel {
namespace {

/// The factor that clips, on the gradient's device, so that no host waits for the norm.
at::Tensor clip_factor(const at::Tensor& gradient, double most) {
  const at::Tensor norm = at::linalg_vector_norm(gradient, 2, at::OptionalIntArrayRef(), /*keepdim=*/false, at::kDouble);
  return at::where(norm > most, most / norm, at::ones_like(norm)).to(at::kFloat);
}

}  // namespace

void add_gradient(const compress::Feedback& feedback, const at::Tensor& gradient, const KeptTensors& kept) {
  if (!feedback.has_velocity()) {
    kept.residual.add_(gradient);
    return;
  }
  const double most = feedback.most_norm(gradient.numel());
  kept.velocity.mul_(feedback.momentum()).add_(most > 0 ? gradient * clip_factor(gradient, most) : gradient);
  kept.residual.add_(kept.velocity);
}

void forget_sent(const compress::Feedback& feedback, const KeptTensors& kept) {
  if (feedback.has_velocity()) kept.velocity.masked_fill_(kept.residual == 0, 0);
  if (!feedback.keeps()) kept.residual.zero_();
}

}  // namespace paceline::data_parallel
