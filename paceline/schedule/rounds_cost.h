// The two halves of predict(), to cost the same rounds for many lengths: building all ranks' lists of steps takes most of the time.
#pragma once

#include <span>

#include "paceline/schedule/cost.h"

namespace paceline::schedule {

/// Seconds of critical_rounds(), whose elements have this many bytes. The width need not be that of a type: n elements of w bytes cost as
/// much as 2n of w/2.
double seconds_of(const Costs& costs, std::span<const Round> rounds, double element_bytes);

}  // namespace paceline::schedule
