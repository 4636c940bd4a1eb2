// Draws an algorithm: ranks side by side, rounds from top to bottom, every message as an arrow. A self-contained SVG for light and dark
// backgrounds.
//
// Each rank's buffer is a bar, drawn before the first round and after each one; the more ranks have contributed to a part, the darker it
// is. An arrow begins at the part that it carries and ends at the part that it changes.
#pragma once

#include <string>
#include <string_view>

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// Draws all ranks, whatever problem.rank is. Throws ConfigError if the algorithm is unknown or does not offer the collective, and for
/// illegibly large drawings: size² · chunks is at most 4096.
std::string drawing(std::string_view algorithm, const Problem& problem);

}  // namespace paceline::schedule
