// First values of parameters, drawn as PyTorch's reference of each network draws them (graph::Init), from streams of our own: the same
// seed gives the same network with any LibTorch, any number of threads and any device.
#pragma once

#include <cstdint>

#include "paceline/graph/graph.h"
#include "paceline/tensor/arena.h"

namespace paceline::nn {

/// Fills the trainable parameters and the statistics of a graph.
void initialise(const graph::Graph& graph, std::uint64_t seed, tensor::Arena& parameters, tensor::Arena& statistics);

}  // namespace paceline::nn
