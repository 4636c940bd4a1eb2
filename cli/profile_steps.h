// Whole steps of runs, for `paceline profile --steps`: one run of each kind, from which predictions learn what no model counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {

struct ProfiledRuns {
  std::vector<std::string> words;     // the arguments of `paceline train`: the recipe of one worker
  std::vector<std::int64_t> workers;  // threads of this host
  std::int64_t batch = 0;             // of all workers together
  int cores = 1;
  double step_s = 0;   // roughly what one worker needs for it
  double seconds = 1;  // how long to measure each run
};

/// Trains with every kind of run that the network and the batch allow, and stores the steps next to the cluster whose predictions they
/// correct (perf/run_steps.h). Returns the lines of a table.
std::vector<std::string> profile_steps(const ProfiledRuns& runs, const graph::Graph& graph, observe::MeasuringLine& line);

}  // namespace paceline::cli
