// Whether values are finite: one NaN or infinity spoils whatever it is added to.
#pragma once

#include <cstdint>

namespace paceline {

/// Whether all of `count` values in host memory are finite.
bool all_finite(const float* values, std::int64_t count);

}  // namespace paceline
