// An algorithm as a picture: ranks side by side, rounds downwards, every message an arrow. A self-contained SVG that reads on light and on
// dark ground.
//
// Each rank's buffer is a bar, drawn before the first round and after each one; its parts are filled the darker the more ranks' elements
// they hold. An arrow leaves the part that it carries and ends in the part that it changes.
#pragma once

#include <string>
#include <string_view>

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// Looks at all ranks, not at problem.rank. Throws ConfigError where the algorithm is unknown or does not offer the collective, and for
/// pictures that nobody could read: size² · chunks is at most 4096.
std::string picture(std::string_view algorithm, const Problem& problem);

}  // namespace paceline::schedule
