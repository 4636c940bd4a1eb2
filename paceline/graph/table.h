// A graph for people and for programs: what `paceline graph` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "paceline/graph/graph.h"

namespace paceline::graph {

/// One aligned line per layer (name, kind, output, parameters, MACs, activation bytes), then the totals.
std::string layer_table(const Graph& graph);

/// {"network", "input", "parameters", "macs", "counts": {"conv", "fc", "pool"}, "layers": [{"name", "kind", "output", "parameters", "macs",
/// "activation_bytes", "gradient_bytes"}, …]}; shapes are arrays, counts are for one sample.
nlohmann::json to_json(const Graph& graph);

}  // namespace paceline::graph
