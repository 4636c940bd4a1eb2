// A recipe as the formulas of memory/ want it, and the refusal of one that will not fit.
#pragma once

#include "paceline/memory/estimate.h"
#include "paceline/train/recipe.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {

/// What a rank holds under this recipe. ConfigError where the mesh does not multiply out.
memory::Plan plan_of(const Recipe& recipe, const RunPlace& place = {});

/// Throws ConfigError, with the nearest choice that fits, where a rank would need more than train.memory_gb, or, where nothing is said,
/// than the machine has. Before anything is allocated. `stages`: as in memory::estimate().
void require_memory(const Recipe& recipe, const graph::Graph& graph, const memory::Plan& plan,
                    const std::vector<graph::Units>& stages = {});

}  // namespace paceline::train
