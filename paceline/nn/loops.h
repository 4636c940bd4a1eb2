// Loops over floats on a CPU that vectorise on any processor. Without LibTorch, and compiled with all optimisation.
#pragma once

#include <cstdint>

namespace paceline::nn::loops {

/// GELU in the tanh form: y = ½ x (1 + tanh u) = x σ(2u), with u = √(2/π) (x + 0.044715 x³). σ needs one exponential, made of a polynomial
/// and of the bits of a float.
void gelu(const float* x, float* y, std::int64_t n);
/// out = gradient × the slope of GELU at x.
void gelu_slope(const float* x, const float* gradient, float* out, std::int64_t n);

/// In place: softmax(scale × row) over the first `seen` of the keys; the others become 0.
void softmax(float* row, std::int64_t seen, std::int64_t keys, float scale);
/// In place: the gradient of the row from that of its softmax, whose values are `weights`.
void softmax_back(const float* weights, float* gradient, std::int64_t keys, float scale);

}  // namespace paceline::nn::loops
