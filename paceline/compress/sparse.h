// What threshold, topk and dgc share: finding the values to send, and codes with the indices of values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "paceline/compress/code.h"
#include "paceline/compress/compressor.h"

namespace paceline::compress {

/// A value of a range: its place, and its bits.
struct Hit {
  std::uint32_t index;
  std::uint32_t bits;
  std::uint32_t size() const { return bits & kMagnitude; }
};

/// Memory for as many hits as a range has values; only the used part is ever touched.
class Hits {
 public:
  /// The values of the layout whose magnitude, as bits, is at least `least`, by ascending index. Valid until the next call.
  std::span<const Hit> find(const RangeLayout& layout, const float* values, std::uint32_t least);

 private:
  std::unique_ptr<Hit[]> memory_;
  std::int64_t capacity_ = 0;
};

/// The k-th largest magnitude, as bits, 1 ≤ k ≤ sizes.size(); found by counting, 10 bits at a time.
std::uint32_t kth_largest(std::span<const std::uint32_t> sizes, std::int64_t k);

/// Throws ConfigError if the indices of the range do not fit into this many bits.
void check_length(const char* compressor, const RangeLayout& layout, int bits);

/// Throws DataError unless index(0), index(1) … are ascending indices of values of the layout.
template <class Index>
void check_places(const char* compressor, const RangeLayout& layout, std::int64_t count, const Index& index) {
  std::size_t part = 0;
  std::int64_t least = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = index(i);
    while (part < layout.parts.size() && layout.parts[part].offset + layout.parts[part].count <= place) ++part;
    if (place < least || part == layout.parts.size() || place < layout.parts[part].offset)
      refuse(compressor,
             "value " + std::to_string(i) + " has place " + std::to_string(place) + ", which is out of order or holds no parameter");
    least = place + 1;
  }
}

}  // namespace paceline::compress
