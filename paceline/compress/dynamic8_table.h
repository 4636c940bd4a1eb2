// The tables of dynamic8: the value of each byte, and the byte for the first bits of a float (see dynamic8.cpp).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace paceline::compress::dynamic8_table {

inline constexpr std::array<double, 7> kTenths = {1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6};

/// The value of each byte.
inline constexpr auto kLevels = [] {
  std::array<float, 256> levels{};
  for (unsigned code = 1; code < 128; ++code) {
    const int bits = std::bit_width(code) - 1;  // of the fraction, after the leading one
    const double bins = 1 << bits;
    levels[code] = static_cast<float>((0.1 + 0.9 * (code - bins + 0.5) / bins) * kTenths[6 - bits]);
    levels[128 + code] = -levels[code];
  }
  return levels;
}();

inline constexpr int kDropped = 23 - 8;                                                      // bits of a float that do not matter
inline constexpr std::uint32_t kFirst = std::bit_cast<std::uint32_t>(0x1p-22f) >> kDropped;  // smaller magnitudes become zero
inline constexpr std::uint32_t kKeys = (std::bit_cast<std::uint32_t>(1.0f) >> kDropped) - kFirst + 1;

/// The byte for the first bits of a magnitude; for negative values in the second half.
inline constexpr auto kCodes = [] {
  std::array<std::uint8_t, 2 * kKeys> codes{};
  unsigned code = 0;
  for (std::uint32_t key = 0; key < kKeys; ++key) {
    const double value = std::bit_cast<float>(((kFirst + key) << kDropped) | (1u << (kDropped - 1)));
    while (code < 127 && value - kLevels[code] > kLevels[code + 1] - value) ++code;
    codes[key] = static_cast<std::uint8_t>(code);
    codes[kKeys + key] = static_cast<std::uint8_t>(128 + code);
  }
  return codes;
}();

}  // namespace paceline::compress::dynamic8_table
