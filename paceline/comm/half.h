// The two 16-bit floating-point types, as bits with conversions that round to nearest even. Only what reductions need.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline::comm {

/// bfloat16: the upper half of a float.
struct BFloat16 {
  std::uint16_t bits;

  static BFloat16 from(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((word >> 16) | 0x40u)};  // a NaN stays one
    return {static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16)};
  }
  float value() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16, which both architectures convert in hardware.
struct Float16 {
#if defined(__aarch64__)
  using Number = __fp16;
#else
  using Number = _Float16;
#endif
  Number number;

  static Float16 from(float value) { return {static_cast<Number>(value)}; }
  float value() const { return static_cast<float>(number); }
};
static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace paceline::comm
