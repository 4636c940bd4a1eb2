// How long a step of a run takes, with everything around its passes: the next batch, the strategy, the bookkeeping.
#pragma once

#include "paceline/train/recipe.h"

namespace paceline::train {

/// Trains `steps` steps with a single worker, in this thread, and leaves no files. Returns the median of their seconds, and of several such
/// runs the median of theirs: one that others disturbed from beginning to end does not count.
double measure_step(const Recipe& recipe, int threads, std::int64_t steps, int runs = 1);

}  // namespace paceline::train
