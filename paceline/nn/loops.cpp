#include "paceline/nn/loops.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace paceline::nn::loops {
namespace {

/// eˣ to a few units in the last place, for |x| ≤ 87 (beyond that, the value at 87): x = n ln 2 + r, 2ⁿ from the exponent's bits, eʳ from
/// its series.
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

constexpr float kSqrt2OverPi = 0.7978845608028654f, kCubic = 0.044715f;

inline float gate(float x) { return 1.0f / (1.0f + exponential(-2.0f * kSqrt2OverPi * (x + kCubic * x * x * x))); }

}  // namespace

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

void softmax(float* row, std::int64_t seen, std::int64_t keys, float scale) {
  // Eight maxima side by side, because the compiler may not reorder std::max of floats.
  constexpr std::int64_t kLanes = 8;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= seen; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = row[i + lane] > lanes[lane] ? row[i + lane] : lanes[lane];
  for (; i < seen; ++i) lanes[0] = std::max(lanes[0], row[i]);
  const float largest = *std::max_element(lanes, lanes + kLanes);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < seen; ++k) {
    const float distance = scale * (row[k] - largest);
    const float value = exponential(distance) + (distance - distance);  // not finite if the score is not; the clamp would hide that
    row[k] = value;
    sum += value;
  }
  const float factor = 1 / sum;
#pragma omp simd
  for (std::int64_t k = 0; k < seen; ++k) row[k] *= factor;
  std::fill(row + seen, row + keys, 0.0f);
}

void softmax_back(const float* weights, float* gradient, std::int64_t keys, float scale) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < keys; ++k) sum += weights[k] * gradient[k];
#pragma omp simd
  for (std::int64_t k = 0; k < keys; ++k) gradient[k] = scale * weights[k] * (gradient[k] - sum);
}

}  // namespace paceline::nn::loops
