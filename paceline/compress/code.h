// What all codes share: reading numbers at unaligned addresses, and checking that a code has the size that its layout requires.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "paceline/base/error.h"

namespace paceline::compress {

inline constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;  // bits of a float
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Orders floats by magnitude; a NaN is the largest, then infinity.
inline std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitude; }

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

[[noreturn]] inline void refuse(const char* compressor, const std::string& what) {
  throw DataError(std::string("a code of ") + compressor, what + "; all workers must have the same model and the same [compress] settings");
}

inline void expect_size(const char* compressor, std::span<const std::byte> code, std::int64_t expected) {
  if (static_cast<std::int64_t>(code.size()) == expected) return;
  refuse(compressor, "expected " + std::to_string(expected) + " bytes, got " + std::to_string(code.size()));
}

}  // namespace paceline::compress
