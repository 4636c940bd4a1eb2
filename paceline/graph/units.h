// Cuts a network into units: what is computed, gathered, recomputed or sent to another worker as one thing. A unit is a block of a ResNet,
// a layer of a transformer, or a convolution with the norm and the activation after it.
//
// Invariant: units are consecutive and cover all layers that are executed; each but the first begins with a layer that has parameters,
// and exactly one tensor goes from each unit to the next, so that no skip connection spans two units.
#pragma once

#include "paceline/graph/graph.h"

namespace paceline::graph {

struct Unit {
  std::string name;                 // "layer1.0", "transformer.h.3", "fc"
  std::size_t first = 0, last = 0;  // layers [first, last)
};

std::vector<Unit> units_of(const Graph& graph);

}  // namespace paceline::graph
