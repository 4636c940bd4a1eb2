// predict() in its two halves, for whoever costs the same rounds for many lengths: making all ranks' lists of steps is what takes long.
#pragma once

#include <span>

#include "paceline/schedule/cost.h"

namespace paceline::schedule {

/// Seconds of critical_rounds(), whose elements have so many bytes. The width need not be that of a type: n elements of w bytes cost as
/// much as 2n of w/2.
double seconds_of(const Costs& costs, std::span<const Round> rounds, double element_bytes);

}  // namespace paceline::schedule
