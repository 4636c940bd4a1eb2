// Corrects predictions with measurements: if a step of the same kind of run was measured (perf/run_steps.h), a prediction is multiplied by
// the model's error there. Effects that no model counts (ranks that wait for a core, memory that others use) are similar for other batches.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "paceline/graph/graph.h"
#include "paceline/perf/run_steps.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// Everything a step's time depends on besides the network, its batch and the machine: settings of a recipe whose workers and strategy are
/// resolved. Defaults are left out, except for the workers and the strategy.
std::vector<std::string> way_of(const Recipe& recipe);

/// The recipe with these settings instead of its own.
Recipe with_way(const Recipe& recipe, const std::vector<std::string>& way);

/// The record of a run with this step time.
perf::RunStep run_step(const Recipe& recipe, const graph::Graph& graph, double seconds);

class StepCorrection {
 public:
  /// `predict`: seconds of a recipe's step by the model.
  StepCorrection(const graph::Graph& graph, std::vector<perf::RunStep> steps, std::function<double(const Recipe&)> predict);

  /// Measured over predicted seconds, from the runs of this network that are most like this one: equal in everything, otherwise sharing the
  /// work in the same way, otherwise with the same number of workers. Between two measured batches it is interpolated by logarithms; beyond
  /// them, the nearest counts. 1 if there was no such run.
  double factor(const Recipe& recipe) const;
  /// The seconds of exactly this run, if it was measured.
  std::optional<double> seconds(const Recipe& recipe) const;

 private:
  std::optional<double> ratio(std::size_t step, const Recipe& recipe) const;

  std::vector<perf::RunStep> steps_;  // of this network
  std::function<double(const Recipe&)> predict_;
  mutable std::map<std::size_t, std::optional<double>> ratios_;
};

}  // namespace paceline::train
