#include "paceline/compress/sparse.h"

#include <algorithm>
#include <array>

#include "paceline/base/error.h"
#include "paceline/base/simd.h"

namespace paceline::compress {
namespace {

constexpr int kTile = 32;

struct Find {
  struct Arguments {
    const float* values;  // of the part
    std::int64_t count;
    std::uint32_t offset;
    std::uint32_t least;
    Hit** end;  // of the hits so far; a hit may be written there and discarded
  };

  // Most tiles have no hits, which a vectorised check finds out. In the others every value is written, and overwritten if it was not a hit.
  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    const auto [values, count, offset, least, end] = arguments;
    Hit* to = *end;
    std::int64_t i = 0;
    for (; i + kTile <= count; i += kTile) {
      std::uint32_t largest = 0;
      for (int k = 0; k < kTile; ++k) largest = std::max(largest, magnitude(values[i + k]));
      if (largest < least) continue;
      for (int k = 0; k < kTile; ++k) to = keep(to, offset, i + k, values, least);
    }
    for (; i < count; ++i) to = keep(to, offset, i, values, least);
    *end = to;
  }

 private:
  [[gnu::always_inline]] static Hit* keep(Hit* to, std::uint32_t offset, std::int64_t i, const float* values, std::uint32_t least) {
    *to = {offset + static_cast<std::uint32_t>(i), std::bit_cast<std::uint32_t>(values[i])};
    return to + (to->size() >= least);
  }
};

}  // namespace

std::span<const Hit> Hits::find(const RangeLayout& layout, const float* values, std::uint32_t least) {
  const std::int64_t needed = layout.elements() + 1;
  if (capacity_ < needed) {
    memory_ = std::make_unique_for_overwrite<Hit[]>(static_cast<std::size_t>(needed));
    capacity_ = needed;
  }
  Hit* end = memory_.get();
  for (const Part& part : layout.parts)
    Simd<Find>::run({values + part.offset, part.count, static_cast<std::uint32_t>(part.offset), least, &end});
  return {memory_.get(), end};
}

std::uint32_t kth_largest(std::span<const std::uint32_t> sizes, std::int64_t k) {
  constexpr int kDigit = 10;
  std::uint32_t found = 0, fixed = 0;  // the digits that are known, and where they are
  for (int shift = 3 * kDigit; shift >= 0; shift -= kDigit) {
    std::array<std::int64_t, 1 << kDigit> counts{};
    for (const std::uint32_t size : sizes)
      if ((size & fixed) == found) ++counts[(size >> shift) & (counts.size() - 1)];
    std::uint32_t digit = static_cast<std::uint32_t>(counts.size()) - 1;
    while (counts[digit] < k) k -= counts[digit--];
    found |= digit << shift;
    fixed |= (static_cast<std::uint32_t>(counts.size()) - 1) << shift;
  }
  return found;
}

void check_length(const char* compressor, const RangeLayout& layout, int bits) {
  if (layout.length <= std::int64_t{1} << bits) return;
  throw ConfigError(std::string(compressor) + " names places by " + std::to_string(bits) + " bits, which do not reach over a range of " +
                    std::to_string(layout.length) + " values; use smaller buckets");
}

}  // namespace paceline::compress
