// What quantisers of a whole tensor ask about it, in one pass.
#pragma once

#include <cstdint>

namespace paceline::compress {

struct Statistics {
  double positive = 0, negative = 0;  // sums of the values without and with a sign
  double squares = 0;
  std::int64_t negatives = 0;  // values with a sign
  std::uint32_t largest = 0;   // magnitude, as bits
  bool finite() const;         // no NaN and no infinity among them
};

inline constexpr std::int64_t kStatisticsBlock = 4096;  // values that are added as floats before a double takes the sum

/// The same bits on every processor: sums run in lanes whose number does not depend on the width of vectors.
Statistics statistics(const float* values, std::int64_t n);

}  // namespace paceline::compress
