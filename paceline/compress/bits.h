// Flags as bits: bit i % 8 of byte i / 8 belongs to element i.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "paceline/base/simd.h"

namespace paceline::compress {

inline constexpr int kFlags = 64;  // elements of a tile: 8 bytes of flags

inline std::int64_t bytes_of_flags(std::int64_t count) { return (count + 7) / 8; }

/// Writes the flags (each 0 or 1) of the elements of a tile; only `count` of them in the last tile.
[[gnu::always_inline]] inline void store_flags(const std::uint8_t (&flags)[kFlags], std::byte* to, std::int64_t count = kFlags) {
  std::array<std::uint8_t, kFlags / 8> bytes;
  for (int i = 0; i < kFlags / 8; ++i) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + 8 * i, sizeof(eight));
    bytes[i] = static_cast<std::uint8_t>((eight * 0x0102040810204080u) >> 56);  // bit 8k goes to bit 56 + k, without collisions
  }
  std::memcpy(to, bytes.data(), static_cast<std::size_t>(bytes_of_flags(count)));
}

/// The flags of a tile as a word; zeros beyond `count`.
[[gnu::always_inline]] inline std::uint64_t load_flags(const std::byte* from, std::int64_t count = kFlags) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, static_cast<std::size_t>(bytes_of_flags(count)));
  return word;
}

/// Bit k of 32: a table, since not every processor can shift each lane by a different count.
inline constexpr auto kBit = [] {
  std::array<std::uint32_t, 32> bits{};
  for (int k = 0; k < 32; ++k) bits[k] = 1u << k;
  return bits;
}();

/// All ones if flag k of a tile is set, else zeros. `k` runs over a half of the tile, as `half` says.
[[gnu::always_inline]] inline std::uint32_t mask_of(std::uint32_t half, int k) {
  return 0u - static_cast<std::uint32_t>((half & kBit[k]) != 0);
}

/// For each half h of a tile: calls set_half(h), and then body(i, k) for its elements, where i is the index in the tile.
template <class SetHalf, class Body>
[[gnu::always_inline]] inline void for_each_half(int count, const SetHalf& set_half, const Body& body) {
  for (int half = 0; 32 * half < count; ++half) {
    set_half(half);
    const int n = std::min(32, count - 32 * half);
#pragma GCC ivdep
    for (int k = 0; k < n; ++k) body(32 * half + k, k);
  }
}

/// Calls tile(begin, count) for every kFlags of n elements; whole tiles get a constant count.
template <class Tile>
[[gnu::always_inline]] inline void for_each_tile(std::int64_t n, const Tile& tile) {
  std::int64_t begin = 0;
  for (; begin + kFlags <= n; begin += kFlags) tile(begin, kFlags);
  if (begin < n) tile(begin, static_cast<int>(n - begin));
}

}  // namespace paceline::compress
