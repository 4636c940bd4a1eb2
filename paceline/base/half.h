// The two 16-bit floating-point types, as bits with conversions that round to nearest even. Only what reductions and compressors need.
//
// The conversions are integer arithmetic without branches, so that loops over them vectorise on every processor. Without a conversion
// instruction, compilers call a function for every number; and of NEON's two conversions, g++ vectorises only the one to floats.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline {

/// bfloat16: the upper half of a float.
struct BFloat16 {
  std::uint16_t bits;

  static BFloat16 from(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<std::uint16_t>(is_nan ? (word >> 16) | 0x40u : rounded)};  // a NaN stays a NaN
  }
  float value() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
struct Float16 {
  std::uint16_t bits;

  static Float16 from(float value) {
    constexpr std::uint32_t kLeastNormal = 0x38800000, kTooLarge = 0x47800000, kInfinity = 0x7f800000;  // 2⁻¹⁴, 2¹⁶
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = word & 0x7fffffffu, bounded = size < kTooLarge ? size : kTooLarge;
    // 112 is the difference of the exponents' biases; a carry out of the fraction moves into the exponent, up to infinity.
    const std::uint32_t normal = (bounded - (112u << 23) + 0xfffu + ((bounded >> 13) & 1u)) >> 13;
    // Near 0.5, the last bit of a float is worth 2⁻²⁴, like that of a subnormal half: the addition rounds.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(bounded) + 0.5f) - 0x3f000000u;
    const std::uint32_t nan = static_cast<std::uint32_t>(size > kInfinity) << 9;
    return {static_cast<std::uint16_t>(choose(size < kLeastNormal, small, normal) | nan | ((word >> 16) & 0x8000u))};
  }
#if defined(__aarch64__)
  float value() const { return static_cast<float>(std::bit_cast<__fp16>(bits)); }
#else
  float value() const {
    const std::uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
    const std::uint32_t large = (size << 13) + (224u << 23), normal = (size << 13) + (112u << 23);  // large: infinity and NaN
    const std::uint32_t small = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(size)) * 0x1p-24f);
    return std::bit_cast<float>(sign | choose(size < 0x0400u, small, choose(size < 0x7c00u, normal, large)));
  }
#endif

 private:
  /// `a` if `condition` holds, else `b`, by masks: a conditional would become a branch and would not vectorise.
  static std::uint32_t choose(bool condition, std::uint32_t a, std::uint32_t b) {
    return b ^ ((a ^ b) & (0u - static_cast<std::uint32_t>(condition)));
  }
};
static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace paceline
