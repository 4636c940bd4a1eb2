// Where a model is cut into the stages of a pipeline: at borders of units, so that the slowest stage is as fast as it can be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/graph/graph.h"
#include "paceline/nn/model.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::pipeline {

struct UnitCost {
  std::string name;
  double time = 0;                    // of a sample, forward and back, in any unit
  std::int64_t bytes = 0;             // what a rank holds for it: parameters, gradients, the optimizer's state
  std::int64_t activation_bytes = 0;  // what it keeps of a sample until it goes back
};

/// Counted from the description: multiplications, and bytes of activations for the layers that only move them.
/// `bytes_per_parameter`: of parameters, gradients and the optimizer's state together.
std::vector<UnitCost> counted_costs(const graph::Graph& graph, std::int64_t bytes_per_parameter = 8);
/// A GraphModule's as above. Of a user's module nobody knows more than its parameters, which stand for its time.
std::vector<UnitCost> counted_costs(nn::Model& model);
/// The model's units by the clock, for a batch of this kind: the fastest of a few passes each. The gradients in its arena are overwritten.
std::vector<UnitCost> measured_costs(nn::Model& model, const at::Tensor& inputs, const Clock& clock);

/// What a rank may hold.
struct MemoryLimit {
  std::int64_t bytes = 0;                  // of a rank; 0: no limit
  std::vector<std::int64_t> samples = {};  // by rank: of how many samples it keeps activations at once; empty: of one
};

/// The units of each virtual stage (schedule/pipeline.h), one behind the other and none empty: of all cuts that the memory allows, the one
/// whose slowest stage is fastest, and of those the most even one. ConfigError where there are more stages than units, or where no cut fits
/// the memory; it names the nearest choice that works.
std::vector<nn::Units> cut_stages(const std::vector<UnitCost>& units, const schedule::PipelineProblem& problem,
                                  const MemoryLimit& memory = {});

/// What one rank holds of them: its chunks, in their order.
std::vector<nn::Units> held_by(const std::vector<nn::Units>& stages, int ranks, int rank);

/// The number of chunks where a recipe leaves it open (0): two where the schedule takes several, otherwise one.
int resolve_chunks(const Entry<schedule::PipelineSchedule>& schedule, std::int64_t chunks);

}  // namespace paceline::pipeline
