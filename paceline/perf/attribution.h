// Where the time of a played stage went.
#pragma once

#include "paceline/perf/play.h"
#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// What the stage's compute lane did and, while it was idle, what it waited for, found by following `because` backwards. The parts add up
/// to the seconds of the play.
Split split_of(const Play& play, std::span<const schedule::Program> stages, int stage);

}  // namespace paceline::perf
