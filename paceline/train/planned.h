// The planner (perf/plan.h) for recipes: what a recipe asks it, and a recipe that does what it chose.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "paceline/perf/plan.h"
#include "paceline/perf/profile.h"
#include "paceline/train/prediction.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// What the planner is told beside the recipe.
struct PlanInputs {
  perf::Cluster cluster;
  std::optional<perf::Profile> profile;  // of the recipe's network; else by the roofline
  std::int64_t workers = 0;              // 0: as many as the cluster has devices
  double crowd = 1;                      // ranks of a host for each of its devices
};

/// `graph` and `inputs` outlive the question. Strategies and compressors are those of the registries; the recipe's own mesh is not looked
/// at.
perf::PlanQuestion plan_question(const Recipe& recipe, const graph::Graph& graph, const PlanInputs& inputs);

/// The recipe with the choice's settings. ConfigError where the choice and the rest of the recipe cannot be together.
Recipe with_choice(const Recipe& recipe, const perf::Choice& choice);

/// What strategy.name=plan stands for: the recipe of the first plan for the run's workers that a run takes, on the cluster by which it is
/// predicted. All processes of a run come to the same.
struct PlannedRecipe {
  Recipe recipe;
  perf::Plan plan;
};
PlannedRecipe planned(const Recipe& recipe, const RunHosts& hosts);

}  // namespace paceline::train
