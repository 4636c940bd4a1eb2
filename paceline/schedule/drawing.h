// An algorithm as a picture: ranks side by side, rounds downwards, every message an arrow. A self-contained SVG for light and dark
// backgrounds.
//
// Each rank's buffer is a bar, drawn before the first round and after each one; its parts are the darker the more ranks' elements they
// hold. An arrow begins at the part that it carries and ends at the part that it changes.
#pragma once

#include <string>
#include <string_view>

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// Looks at all ranks, not at problem.rank. Throws ConfigError if the algorithm is unknown or does not offer the collective, and for
/// illegibly large pictures: size² · chunks is at most 4096.
std::string drawing(std::string_view algorithm, const Problem& problem);

}  // namespace paceline::schedule
