// How far a value may be off, by where it came from: half the width of the interval around what follows from it.
#pragma once

#include "paceline/perf/quantity.h"

namespace paceline::perf {

/// What was measured comes back within some percent; a data sheet gives peaks; a rule of thumb, the order of magnitude.
constexpr double uncertainty_of(Source source) { return source == Source::measured ? 0.05 : source == Source::spec ? 0.15 : 0.3; }
inline constexpr double kUnmeasuredProducts = 0.3;  // a peak speed that was taken for the reached one
inline constexpr double kOutside = 0.25;            // beyond the batches or sizes that were measured

}  // namespace paceline::perf
