// Tests whether values are finite: a single NaN or infinity contaminates every sum that it enters.
#pragma once

#include <cstdint>

namespace paceline {

/// Whether all of `count` values in host memory are finite.
bool all_finite(const float* values, std::int64_t count);

}  // namespace paceline
