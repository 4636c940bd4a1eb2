// Sigmoid and tanh that loops can vectorise.
//
// Both come from one function, eʸ − 1, that keeps its relative accuracy around zero: y = n ln 2 + r with |r| ≤ ½ ln 2, the Taylor series of
// eʳ − 1 to the seventh power (the eighth is below 2⁻²⁵ of it), then eʸ − 1 = 2ⁿ (eʳ − 1) + (2ⁿ − 1).
//
//   tanh |x| = E / (E + 2), E = e^{2|x|} − 1        σ(x) = 1 / (2 + E), E = e^{−x} − 1
//
// In float the relative error of both is below 5·10⁻⁷, also where they are tiny (tests/ps/predictor_test.cpp); |x| > 40 counts as 40. In
// double, which only tests use, they are the library's own.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace paceline::ps {

/// a b + c, fused where the architecture always has the instruction (aarch64) and never where only some processors do (x86_64): all
/// processors of one architecture get the same bits.
template <class T>
[[gnu::always_inline]] inline T multiply_add(T a, T b, T c) {
#if defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

[[gnu::always_inline]] inline float exp_minus_one(float y) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // n · high is exact: it has nine bits
  constexpr float kShift = 12582912.0f;  // 1.5 · 2²³: adding it leaves the nearest integer in the lowest bits
  const float shifted = multiply_add(y, kLog2E, kShift), n = shifted - kShift;
  const float r = multiply_add(n, -kLn2Low, multiply_add(n, -kLn2High, y));
  float series = multiply_add(r, 1 / 5040.0f, 1 / 720.0f);
  series = multiply_add(r, series, 1 / 120.0f);
  series = multiply_add(r, series, 1 / 24.0f);
  series = multiply_add(r, series, 1 / 6.0f);
  series = multiply_add(r, series, 1 / 2.0f);
  series = multiply_add(r * r, series, r);
  const auto power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);  // 2ⁿ
  return multiply_add(power, series, power - 1);
}

/// y within ±80, by its bits: comparisons of floats would stay branches, and the loop around them scalar.
[[gnu::always_inline]] inline float limited(float y) {
  constexpr std::uint32_t kMost = std::bit_cast<std::uint32_t>(80.0f), kSign = 0x80000000u;
  const auto bits = std::bit_cast<std::uint32_t>(y);
  return std::bit_cast<float>(std::min(bits & ~kSign, kMost) | (bits & kSign));
}

[[gnu::always_inline]] inline float sigmoid(float x) { return 1 / (2 + exp_minus_one(limited(-x))); }

[[gnu::always_inline]] inline float tangent_hyperbolic(float x) {
  const float e = exp_minus_one(limited(2 * std::fabs(x)));
  return std::copysign(e / (e + 2), x);
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double tangent_hyperbolic(double x) { return std::tanh(x); }

}  // namespace paceline::ps
