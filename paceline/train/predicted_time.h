// The predicted time of a step, before a run: the recipe's step programs (step_settings.h), costed on a cluster by perf/. The run's
// summary.json stores it next to the measured time, and `paceline verify` compares the two.
#pragma once

#include <memory>
#include <optional>

#include "paceline/observe/event.h"
#include "paceline/perf/profile.h"
#include "paceline/perf/roofline_times.h"
#include "paceline/perf/step_cost.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {

/// The processes of a run.
struct RunHosts {
  int hosts = 1, workers_per_host = 1;
  RunPlace place = {};
};

/// Predicts a step on the cluster of train.cluster, with the profile of train.profile if there is one. Of several bucket plans the fastest
/// is used, as in a run. Nullopt if steps take no real time, as with a parameter server under the virtual clock. ConfigError if a file
/// cannot be read, or the cluster is too small for the run.
std::optional<observe::Prediction> predict(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts,
                                           const std::vector<graph::Units>& stages = {});

/// The inputs of a prediction, besides the recipe.
struct PredictedMachine {
  perf::Cluster cluster;
  double crowd = 1;                           // ranks per device on a host
  std::optional<perf::Profile> profile = {};  // of the network; without it, the roofline is used
};

/// The cost of a recipe's step by the model alone, without corrections from earlier runs (step_correction.h). With a parameter server, the
/// cost of one worker's minibatch.
perf::StepCost model_cost(const Recipe& recipe, const graph::Graph& graph, const PredictedMachine& machine, const RunHosts& hosts,
                          const std::vector<graph::Units>& stages = {});

/// The same for one of the step's settings, with a given cluster and given times. With a server, the cost of a worker's own step.
perf::StepCost mean_cost(const RecipeStep& step, const schedule::ProgramSettings& chosen, const perf::CostModel& model,
                         const perf::ComputeTimes& times, perf::CostOptions options);

/// What a roofline needs to know about a recipe's step.
perf::RooflineSettings roofline_settings(const Recipe& recipe, const schedule::ProgramSettings& settings);

/// Whether the speed of this machine is known: from train.cluster, train.profile, or the files that `paceline probe` and `paceline profile`
/// leave in the working folder. Rules of thumb alone are not enough for a prediction.
bool knows_machine(const Recipe& recipe);

/// Uses the cluster of train.cluster, adapted to the run, and the profile of train.profile if it is set. Files found in the working folder
/// are used if they match the run's kind of device and its network.
PredictedMachine predicted_machine(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts);
std::string predicted_source(const Recipe& recipe);  // the cluster's file, or its key
/// How much a worker's steps vary, according to a profile.
perf::Jitter jitter_of(const perf::ProfileTable& table);
/// The times that a profile has for the settings' precision, and for as many workers on a host as have a device each.
std::unique_ptr<perf::ComputeTimes> measured_times(const Recipe& recipe, const graph::Graph& graph, const PredictedMachine& machine,
                                                   const perf::RooflineSettings& settings, std::int64_t workers_per_host);
const perf::ProfileTable& table_for(const PredictedMachine& machine, perf::Precision precision, std::int64_t workers_per_host);

}  // namespace paceline::train
