// Shape inference: the output shape of a layer, and its cost.
#pragma once

#include <span>

#include "paceline/graph/graph.h"

namespace paceline::graph {

/// No count of a graph may exceed this: sums stay far from overflow, and absurd settings end in a ConfigError.
inline constexpr std::int64_t kLargest = std::int64_t{1} << 60;

/// Fills in output, parameters, macs and bytes of `layer` from its inputs' shapes; throws ConfigError if they do not fit.
void infer(Layer& layer, std::span<const Shape> inputs);

/// The tensors of a layer whose first input has this shape, in PyTorch's order; Parameter::layer is left at 0.
std::vector<Parameter> tensors_of(const Layer& layer, const Shape& input);

}  // namespace paceline::graph
