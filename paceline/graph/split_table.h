// A tensor split for people and for programs: what `paceline graph NETWORK --mesh tensor=2` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "paceline/graph/tensor_split.h"

namespace paceline::graph {

/// One aligned line per layer: form, output, tensors and communication of a rank; then the totals. `stages`: of a pipeline that divides
/// the layers as well.
std::string split_table(const Graph& graph, const TensorSplit& split, std::size_t stages = 1);
/// {"tensor", "sequence", "parameters_of_rank": […], "layers": [{"name", "form", "output", "forward", "backward", "tensors": [{"name",
/// "shape", "local", "dim"}]}]}; of a hybrid "data" in place of "tensor", "batch" and "bytes_of_step": {"activations", "gradients"}
nlohmann::json to_json(const Graph& graph, const TensorSplit& split);

}  // namespace paceline::graph
