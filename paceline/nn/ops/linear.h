// y = x Wᵀ + b on rows, shared by fc and attention: the products write weight gradients directly into the arena.
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

/// x: [rows, in], weight: [out, in], bias: [out] or undefined → [rows, out].
at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Writes ∂W = gᵀx and ∂b = Σ g; returns g W, or an undefined tensor if the input's gradient is not wanted.
at::Tensor linear_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& weight_gradient,
                           const at::Tensor& bias_gradient, const Pass& pass, bool wants_input);

}  // namespace paceline::nn
