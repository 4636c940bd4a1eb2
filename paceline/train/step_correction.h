// Predictions learn from runs: where a step of the same kind of run was measured (perf/run_steps.h), a prediction is multiplied by what the
// model was off there. What no model counts (ranks that wait for a core, memory that others use) is alike at another batch.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "paceline/graph/graph.h"
#include "paceline/perf/run_steps.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// What a step's time depends on besides the network, its batch and the machine, as words of a recipe that knows its workers and its
/// strategy. What is as usual is left out, but for both of these.
std::vector<std::string> way_of(const Recipe& recipe);

/// The recipe with the settings of a way in place of its own.
Recipe with_way(const Recipe& recipe, const std::vector<std::string>& way);

/// What is kept of a run with this step time.
perf::RunStep run_step(const Recipe& recipe, const graph::Graph& graph, double seconds);

class StepCorrection {
 public:
  /// `predict`: seconds of a recipe's step as the model has them.
  StepCorrection(const graph::Graph& graph, std::vector<perf::RunStep> steps, std::function<double(const Recipe&)> predict);

  /// Measured over predicted seconds of the runs of this network that are most like this one: that agree in everything, else that share the
  /// work as it does, else that have as many workers. At a batch between two on the line through both, by logarithms; beyond them as at the
  /// nearest. 1 where there was no such run.
  double factor(const Recipe& recipe) const;
  /// Of this very run, where it was measured.
  std::optional<double> seconds(const Recipe& recipe) const;

 private:
  std::optional<double> ratio(std::size_t step, const Recipe& recipe) const;

  std::vector<perf::RunStep> steps_;  // of this network
  std::function<double(const Recipe&)> predict_;
  mutable std::map<std::size_t, std::optional<double>> ratios_;
};

}  // namespace paceline::train
