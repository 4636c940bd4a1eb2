// How long a step of a run takes, with everything around its passes: the next batch, the strategy, the bookkeeping.
#pragma once

#include "paceline/train/recipe.h"

namespace paceline::train {

/// Trains `steps` steps with a single worker, in this thread, and leaves no files. Returns the median of their seconds.
double measure_step(Recipe recipe, int threads, std::int64_t steps);

}  // namespace paceline::train
