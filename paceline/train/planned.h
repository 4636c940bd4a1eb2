// The planner (perf/plan.h) for recipes: the question that a recipe asks, and the recipe that carries out the answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "paceline/perf/plan.h"
#include "paceline/perf/profile.h"
#include "paceline/train/predicted_time.h"
#include "paceline/train/recipe.h"
#include "paceline/train/step_correction.h"
#include "paceline/train/workload.h"

namespace paceline::train {

/// What the planner needs in addition to the recipe.
struct PlanInputs {
  PredictedMachine machine;
  std::int64_t workers = 0;               // 0: as many as the cluster has devices
  std::vector<perf::RunStep> steps = {};  // measured steps, which correct the model
};

/// `graph` and `inputs` outlive the question. Strategies and compressors are those of the registries; the recipe's own mesh is ignored.
perf::PlanQuestion plan_question(const Recipe& recipe, const graph::Graph& graph, const PlanInputs& inputs);

/// The recipe with the settings of a choice (perf::settings_of) instead of its own mesh and strategy; parallel.workers stays. ConfigError
/// if the choice and the rest of the recipe are incompatible.
Recipe with_settings(const Recipe& recipe, const std::vector<std::string>& settings);
/// The same, with the number of workers of the choice.
Recipe with_choice(const Recipe& recipe, const perf::Choice& choice);

/// Whether a run computes what one worker with the whole batch would; the planner and `paceline verify` list others separately.
bool is_exact(const Recipe& recipe);

/// ConfigError if strategy.name=plan has nothing to plan: a user's own module, whose layers are unknown.
void require_plannable(const Recipe& recipe, const Workload& workload);
/// The plan for strategy.name=plan: the best one for the recipe's workers (resolve_for) that a run accepts, on the cluster that the run's
/// predictions use. `info`: of the training data.
perf::Plan plan_for(const Recipe& recipe, const data::Info& info, const RunHosts& hosts);

}  // namespace paceline::train
