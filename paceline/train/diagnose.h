// Where a run went wrong: the first layer whose weights or outputs are no longer numbers.
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "paceline/nn/graph_module.h"

namespace paceline::train {

/// Something that is not finite. In numbers, so that workers can tell each other; the least is the first.
struct Fault {
  std::int64_t step = 0;
  std::int64_t layer = 0;       // of the graph: 0 is the batch itself, graph.logits() + 1 the loss
  std::int64_t parameter = -1;  // of graph.parameters(); -1: what the layer gives

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the result is compared with for a pointer
  auto operator<=>(const Fault&) const = default;
};

/// The first parameter or statistic, in the order of layers, that is not finite.
std::optional<Fault> bad_parameter(nn::GraphModule& module, std::int64_t step);

/// The first fault in the order of the forward pass on `inputs`, which leaves the module as it was.
Fault first_fault(nn::GraphModule& module, const at::Tensor& inputs, std::int64_t step, bool training);

/// "'conv1.weight' of layer 'conv1' is not finite".
std::string describe(const graph::Graph& graph, const Fault& fault);

}  // namespace paceline::train
