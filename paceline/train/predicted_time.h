// The predicted time of a step, before a run: the recipe's step programs (step_settings.h), costed on a cluster by perf/. The run's
// summary.json keeps it beside the measured time, and `paceline verify` compares them.
#pragma once

#include <optional>

#include "paceline/observe/event.h"
#include "paceline/perf/cost.h"
#include "paceline/perf/profile.h"
#include "paceline/perf/roofline_times.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {

/// The processes of a run.
struct RunHosts {
  int hosts = 1, workers_per_host = 1;
  RunPlace place = {};
};

/// On the cluster of train.cluster, with the profile of train.profile where there is one. Of several cuts into buckets the fastest counts,
/// as in a run. Nothing if steps take no real time: those of a parameter server under the virtual clock. ConfigError if a file cannot be
/// read, or the cluster cannot hold such a run.
std::optional<observe::Prediction> predict(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts,
                                           const std::vector<graph::Units>& stages = {});

/// What predictions are made from.
struct PredictedMachine {
  perf::Cluster cluster;
  double crowd = 1;                           // ranks of a host for each of its devices
  std::optional<perf::Profile> profile = {};  // of the network; else by the roofline
};

/// The cost of a recipe's step by the model alone, without corrections by earlier runs (step_correction.h). Of a parameter server's, of one
/// worker's minibatch.
perf::StepCost model_cost(const Recipe& recipe, const graph::Graph& graph, const PredictedMachine& machine, const RunHosts& hosts,
                          const std::vector<graph::Units>& stages = {});

/// What a roofline must know of a recipe's step.
perf::RooflineSettings roofline_settings(const Recipe& recipe, const schedule::ProgramSettings& settings);

/// Whether the speed of this machine is known: from train.cluster, train.profile, or the files that `paceline probe` and `paceline profile`
/// leave in the working folder. A run is not predicted from rules of thumb alone.
bool knows_machine(const Recipe& recipe);

/// By the cluster of train.cluster as such a run has it, and the profile of train.profile, if there is one. What merely lies in the working
/// folder is taken where it is of the run's kind of device, and of the network.
PredictedMachine predicted_machine(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts);
std::string predicted_source(const Recipe& recipe);  // the cluster's file, or its key
/// What was measured with as many ranks as have a device each.
const perf::ProfileTable& table_for(const perf::Profile& profile, perf::Precision precision, std::int64_t ranks, double crowd);

}  // namespace paceline::train
