// Where the time of a played stage went.
#pragma once

#include "paceline/perf/play.h"
#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// What the stage's compute lane did; and while it did nothing, what it waited for, back along the actions that let one another begin. Adds
/// up to the play's seconds.
Split split_of(const Play& play, std::span<const schedule::Program> stages, int stage);

}  // namespace paceline::perf
