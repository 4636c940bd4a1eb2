// The statistics of a tensor that quantisers need, in one pass.
#pragma once

#include <cstdint>

namespace paceline::compress {

struct Statistics {
  double positive = 0, negative = 0;  // sums of the non-negative and of the negative values
  double squares = 0;
  std::int64_t negatives = 0;  // negative values
  std::uint32_t largest = 0;   // magnitude, as bits
  bool finite() const;         // no NaN and no infinity
};

inline constexpr std::int64_t kStatisticsBlock = 4096;  // values that are added as floats before the sum goes to a double

/// The same bits on every processor: the number of lanes does not depend on the vector width.
Statistics statistics(const float* values, std::int64_t n);

}  // namespace paceline::compress
