// Where a run went wrong: the first layer whose weights or outputs are no longer numbers.
#pragma once

#include <string>

#include "paceline/nn/graph_module.h"

namespace paceline::train {

/// Whether every parameter and statistic is a number.
bool all_finite(nn::GraphModule& module);

/// "'conv1.weight' of layer 'conv1' is not finite", in the order of the forward pass on `inputs`.
std::string first_not_finite(nn::GraphModule& module, const at::Tensor& inputs);

}  // namespace paceline::train
