// Rounds in closed form (Algorithm::rounds), for the algorithms whose lists grow with the square of the ranks. Each host has `per_host`
// ranks. A test compares them with the lists.
#pragma once

#include "paceline/schedule/path.h"

namespace paceline::schedule {

std::optional<std::vector<Round>> ring_rounds(const Problem& problem, int per_host);
std::optional<std::vector<Round>> direct_rounds(const Problem& problem, int per_host);
std::optional<std::vector<Round>> hierarchical_rounds(const Problem& problem, int per_host);

}  // namespace paceline::schedule
