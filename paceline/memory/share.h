// The part of a network that one rank of the tensor axis has: layers, units, numbers of parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/graph/units.h"
#include "paceline/memory/estimate.h"

namespace paceline::memory {

struct Share {
  std::vector<graph::Layer> layers;  // up to the logits
  std::vector<graph::Unit> units;
  std::vector<std::int64_t> parameters, statistics;  // by unit: elements
  std::vector<std::int64_t> spread;  // by unit: parameters that differ on every data-parallel worker (experts, shared layers)
  std::vector<std::int64_t> slots;   // by unit: features of all slots of its largest expert layer
  struct Tied {
    std::size_t table = 0, head = 0;  // units
    std::int64_t elements = 0;        // of the table
  };
  std::optional<Tied> tied = {};  // embeddings
  bool split_loss = false;        // the rank has the logits of only some classes
};
Share share_of(const graph::Graph& graph, const Plan& plan);

}  // namespace paceline::memory
