// Initial values of parameters, drawn as PyTorch's reference of each network draws them (graph::Init), but from Paceline's random streams:
// the same seed gives the same network with any LibTorch version, number of threads and device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "paceline/graph/graph.h"
#include "paceline/tensor/arena.h"

namespace paceline::nn {

/// A tensor of the network that a rank holds, or a slice of one.
struct HeldParameter {
  graph::Parameter parameter;               // as the network has it, in its whole shape
  std::size_t index = 0;                    // among the trainable ones of the network, or among its statistics
  std::optional<tensor::Slice> slice = {};  // none: all of it

  std::vector<std::int64_t> shape() const;  // of what is held
};

/// Fills the trainable parameters and the statistics that are held, in their order. A tensor has the values that it has in the whole
/// network, whichever part of it this rank holds.
void initialise(const graph::Graph& graph, std::span<const HeldParameter> held, std::uint64_t seed, tensor::Arena& parameters,
                tensor::Arena& statistics);

}  // namespace paceline::nn
