// GELU in the tanh form, as in GPT-2: y = ½ x (1 + tanh u) = x σ(2u), with u = √(2/π) (x + 0.044715 x³).
//
// LibTorch calls a scalar tanh for every element on processors that its vector library does not know, which was more than half of a small
// GPT's step. The loops here vectorise on any processor: σ needs one exponential, made of a polynomial and of the bits of a float.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <bit>

#include "paceline/nn/ops/gelu.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

constexpr float kSqrt2OverPi = 0.7978845608028654f, kCubic = 0.044715f;
constexpr std::int64_t kGrain = 1 << 14;

/// eˣ to a few units in the last place, for |x| ≤ 87 (beyond, the value there): x = n ln 2 + r, 2ⁿ from the exponent's bits, eʳ from its
/// series.
inline float exponential(float x) {
  // Clamped by its bits: a comparison of floats may trap, and the compiler would not vectorise it.
  constexpr auto kLimit = std::bit_cast<std::uint32_t>(87.0f);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffffu;
  x = std::bit_cast<float>((size < kLimit ? size : kLimit) | (bits & 0x80000000u));
  constexpr float kRound = 12582912.0f;  // 1.5 · 2²³: adding it leaves the nearest whole number in the low bits
  const float shifted = x * 1.44269504f + kRound, whole = shifted - kRound;
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts, the first exact in few bits
  float series = 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u;
  return series * std::bit_cast<float>(power);
}

inline float gate(float x) { return 1.0f / (1.0f + exponential(-2.0f * kSqrt2OverPi * (x + kCubic * x * x * x))); }

void gelu(const float* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * gate(x[i]);
}

void gelu_slope(const float* x, const float* gradient, float* out, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gate(x[i]);
    out[i] = gradient[i] * (g + x[i] * g * (1.0f - g) * (2.0f * kSqrt2OverPi) * (1.0f + 3.0f * kCubic * x[i] * x[i]));
  }
}

bool has_own_loop(const at::Tensor& values) { return values.is_cpu() && values.scalar_type() == at::kFloat; }

class Gelu final : public Op {
 public:
  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    saved = {inputs[0].contiguous()};
    return gelu_values(saved[0]);
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {gelu_gradient(gradient.contiguous(), saved[0])};
  }
};

}  // namespace

at::Tensor gelu_values(const at::Tensor& x) {
  if (!has_own_loop(x)) return at::gelu(x, "tanh");
  at::Tensor y = at::empty_like(x);
  const auto* from = x.data_ptr<float>();
  auto* to = y.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) { gelu(from + begin, to + begin, end - begin); });
  return y;
}

at::Tensor gelu_gradient(const at::Tensor& gradient, const at::Tensor& x) {
  if (!has_own_loop(x)) return at::gelu_backward(gradient, x, "tanh");
  at::Tensor out = at::empty_like(x);
  const float *from = x.data_ptr<float>(), *by = gradient.data_ptr<float>();
  auto* to = out.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain,
                   [&](std::int64_t begin, std::int64_t end) { gelu_slope(from + begin, by + begin, to + begin, end - begin); });
  return out;
}

MadeOp make_gelu(const graph::Layer&, bool) { return std::make_unique<Gelu>(); }

}  // namespace paceline::nn
