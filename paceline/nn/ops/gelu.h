// GELU as a function, for layers that contain it.
#pragma once

#include <ATen/core/Tensor.h>

namespace paceline::nn {

/// `x` and `gradient` must be contiguous.
at::Tensor gelu_values(const at::Tensor& x);
/// The gradient with respect to x.
at::Tensor gelu_gradient(const at::Tensor& gradient, const at::Tensor& x);

}  // namespace paceline::nn
