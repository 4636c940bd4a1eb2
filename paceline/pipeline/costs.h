// What the units of a model cost, where a network's description does not say it (graph/stages.h): by their parameters, or by the clock.
#pragma once

#include "paceline/base/clock.h"
#include "paceline/graph/stages.h"
#include "paceline/nn/graph_module.h"

namespace paceline::pipeline {

/// A GraphModule's are counted from its graph. Of a user's module only the parameters are known, which stand for its time.
std::vector<graph::UnitCost> counted_costs(nn::Model& model);

/// By the clock, for a micro-batch like `inputs`: the fastest of a few passes of each unit. The gradients in the model's arena are
/// overwritten; everything else stays as it is.
std::vector<graph::UnitCost> measured_costs(nn::Model& model, const at::Tensor& inputs, const Clock& clock);
/// The same for a network that need not fit into memory: it is built one unit at a time, and not split among ranks.
std::vector<graph::UnitCost> measured_costs(const graph::Graph& graph, nn::GraphModule::Options options, const at::Tensor& inputs,
                                            const Clock& clock);

}  // namespace paceline::pipeline
