// The rounds of a collective (schedule/path.h) without the lists of all ranks, for the algorithms whose lists grow with the square of the
// ranks: a ring of 1,024 has four million steps, and each of its rounds is like the one before.
#pragma once

#include <optional>
#include <vector>

#include "paceline/schedule/path.h"

namespace paceline::perf {

/// What schedule::critical_rounds() makes of the lists, where the ranks (and hosts, and chunks) divide problem.count; none where that takes
/// the lists. A test holds both together.
std::optional<std::vector<schedule::Round>> closed_rounds(std::string_view algorithm, const schedule::Problem& problem, int per_host);

}  // namespace paceline::perf
