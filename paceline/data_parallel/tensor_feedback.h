// compress::Feedback for tensors on any device: the same bits, except for the norm by which dgc_clip clips, which is summed in another
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/compress/feedback.h"

namespace paceline::data_parallel {

/// What a range keeps from step to step.
struct KeptTensors {
  at::Tensor residual, velocity;  // velocity: if Feedback::has_velocity()
};

/// Feedback::add().
void add_gradient(const compress::Feedback& feedback, const at::Tensor& gradient, const KeptTensors& kept);
/// Feedback::said().
void forget_sent(const compress::Feedback& feedback, const KeptTensors& kept);

}  // namespace paceline::data_parallel
