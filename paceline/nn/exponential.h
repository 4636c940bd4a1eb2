// eˣ in a form that compilers vectorise on any processor.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline::nn {

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

}  // namespace paceline::nn
