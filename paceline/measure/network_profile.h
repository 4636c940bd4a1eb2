// What the units of a network cost on this device: the step of a run, cut at the borders of units by a stopwatch.
#pragma once

#include "paceline/graph/graph.h"
#include "paceline/measure/measuring_ranks.h"
#include "paceline/nn/loss.h"
#include "paceline/nn/model.h"
#include "paceline/optim/optimizer.h"
#include "paceline/perf/profile.h"
#include "paceline/step/strategy.h"

namespace paceline::measure {

struct NetworkProfileOptions {
  std::vector<std::int64_t> batches = {8, 32, 128};  // samples of one pass
  std::vector<optim::OptimConfig> optimizers = {};   // one at least
  double seconds = 1;                                // that each batch is measured for, unless three steps take longer
};

/// Samples of the form that the network takes, without a meaning.
step::Batch random_batch(const graph::Graph& graph, std::int64_t samples, const c10::Device& device);

/// Measures the model at all ranks at the same time, each with its own, which has every unit. The weights stay as they are: updates are
/// made with a rate of 0. Times are medians over the steps and means over the ranks. Collective.
perf::ProfileTable profile_network(nn::Model& model, const nn::Loss& loss,
                                   const std::function<step::Batch(std::int64_t samples)>& make_batch, const NetworkProfileOptions& options,
                                   const Rank& rank, const Clock& clock);

}  // namespace paceline::measure
