// Measures what the units of a network cost on this device: runs whole training steps, timed at the borders of units.
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
  std::vector<std::int64_t> batches = {8, 32, 128};  // samples per pass
  std::vector<optim::OptimConfig> optimizers = {};   // at least one
  double seconds = 1;                                // to measure each batch size for, unless three steps take longer, or many take less
};

/// Random samples of the shape that the network takes.
step::Batch random_batch(const graph::Graph& graph, std::int64_t samples, const c10::Device& device);

/// Measures the model on all ranks at the same time, each with a complete model of its own. The weights do not change, because updates use
/// a rate of 0. Times are medians over the steps and means over the ranks. Collective.
perf::ProfileTable profile_network(nn::Model& model, const nn::Loss& loss,
                                   const std::function<step::Batch(std::int64_t samples)>& make_batch, const NetworkProfileOptions& options,
                                   const Rank& rank, const Clock& clock);

}  // namespace paceline::measure
