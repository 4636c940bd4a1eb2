// How long a step of a run takes, with all that a run does around its passes: the next batch, the strategy, the books.
#pragma once

#include "paceline/train/recipe.h"

namespace paceline::train {

/// Trains `steps` steps with one worker alone, in this thread, and writes nothing that stays. The median of their seconds.
double measure_step(Recipe recipe, int threads, std::int64_t steps);

}  // namespace paceline::train
