// The relative uncertainty of a value, by its source: half the width of the interval around results that follow from it.
#pragma once

#include "paceline/perf/quantity.h"

namespace paceline::perf {

/// Measurements repeat within some percent; a data sheet gives peaks; a rule of thumb gives the order of magnitude.
constexpr double uncertainty_of(Source source) { return source == Source::measured ? 0.05 : source == Source::spec ? 0.15 : 0.3; }
inline constexpr double kUnmeasuredProducts = 0.3;  // the peak speed is used because the reached one was not measured
inline constexpr double kOutside = 0.25;            // beyond the batches or sizes that were measured

}  // namespace paceline::perf
