// Converts a recipe to the input of memory/'s formulas, and refuses one that will not fit.
#pragma once

#include "paceline/memory/estimate.h"
#include "paceline/train/recipe.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {

/// The memory of a rank under this recipe. ConfigError if the mesh does not match the number of workers.
memory::Plan plan_of(const Recipe& recipe, const RunPlace& place = {});

/// Throws ConfigError, with the nearest choice that fits, if a rank would need more than train.memory_gb or, if that is not set, more than
/// the machine has; before anything is allocated. `stages`: as in memory::estimate().
void require_memory(const Recipe& recipe, const graph::Graph& graph, const memory::Plan& plan,
                    const std::vector<graph::Units>& stages = {});

}  // namespace paceline::train
