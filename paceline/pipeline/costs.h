// What the units of a model cost if a network's description does not say it (graph/stages.h): estimated from their parameters, or measured.
#pragma once

#include "paceline/base/clock.h"
#include "paceline/graph/stages.h"
#include "paceline/nn/graph_module.h"

namespace paceline::pipeline {

/// For a GraphModule, counted from its graph. For a user's module, only the parameters are known, and they stand in for its time.
std::vector<graph::UnitCost> counted_costs(nn::Model& model);

/// Measured, for a micro-batch like `inputs`: the fastest of a few passes of each unit. Overwrites the gradients in the model's arena, and
/// changes nothing else.
std::vector<graph::UnitCost> measured_costs(nn::Model& model, const at::Tensor& inputs, const Clock& clock);
/// The same for a network that need not fit into memory: it is built one unit at a time, and not divided among ranks.
std::vector<graph::UnitCost> measured_costs(const graph::Graph& graph, nn::GraphModule::Options options, const at::Tensor& inputs,
                                            const Clock& clock);

}  // namespace paceline::pipeline
