#include "paceline/base/finite.h"

#include <algorithm>

#include "paceline/base/simd.h"

namespace paceline {
namespace {

/// Counts exponents that are all ones: infinities and NaN. In integers, because comparisons of floats may trap and do not vectorise.
struct NotFinite {
  struct Arguments {
    const float* values;
    std::int64_t count;
    std::uint32_t& found;
  };
  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    std::uint32_t found = 0;
    for (std::int64_t i = 0; i < arguments.count; ++i)
      found |= static_cast<std::uint32_t>((__builtin_bit_cast(std::uint32_t, arguments.values[i]) & 0x7f800000u) == 0x7f800000u);
    arguments.found = found;
  }
};

}  // namespace

bool all_finite(const float* values, std::int64_t count) {
  constexpr std::int64_t kPiece = 1 << 16;
  for (std::int64_t at = 0; at < count; at += kPiece) {
    std::uint32_t found = 0;
    Simd<NotFinite>::run({values + at, std::min(kPiece, count - at), found});
    if (found) return false;
  }
  return true;
}

}  // namespace paceline
