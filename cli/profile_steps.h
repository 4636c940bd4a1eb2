// Whole steps of runs, for `paceline profile --steps`: one of each kind, so that predictions learn what no model counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {

struct ProfiledRuns {
  std::vector<std::string> words;     // of `paceline train`: the recipe of one worker
  std::vector<std::int64_t> workers;  // threads of this host
  std::int64_t batch = 0;             // of all of them together
  int cores = 1;
  double step_s = 0;   // what a worker alone needs for it, roughly
  double seconds = 1;  // to measure each run for
};

/// Trains with every kind of run that the network and the batch allow, and keeps the steps beside the cluster by which such runs are
/// predicted (perf/run_steps.h). Returns the lines of a table.
std::vector<std::string> profile_steps(const ProfiledRuns& runs, const graph::Graph& graph, observe::MeasuringLine& line);

}  // namespace paceline::cli
