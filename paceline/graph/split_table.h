// A network on a mesh for people and for programs: what `paceline graph NETWORK --mesh tensor=2` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paceline/graph/stages.h"
#include "paceline/graph/tensor_split.h"

namespace paceline::graph {

/// The division of a network on a mesh. A hybrid's split is along the data axis.
struct OnMesh {
  TensorSplit split;
  std::vector<Units> stages = {};  // of a pipeline; empty: there is none
  int data = 1;
};

/// The trainable elements that each rank holds, by the rank's number in the mesh.
std::vector<std::int64_t> parameters_by_rank(const Graph& graph, const OnMesh& mesh);

/// "conv1, fc1, fc2 and 3 more stay whole: no layer to pair with": a line per reason for layers that stay whole although layers of their
/// kind can be split. Beyond a few reasons, one line counts the rest.
std::vector<std::string> layers_left_whole(const Graph& graph, const TensorSplit& split);
/// One aligned line per layer: form, output, tensors and communication of a rank; then the totals, and a line per stage with its share of
/// the time of a step.
std::string split_table(const Graph& graph, const OnMesh& mesh);
/// {"tensor", "sequence", "parameters_of_rank": [by rank], "layers": [{"name", "form", "note", "output", "forward", "backward", "tensors":
/// [{"name", "shape", "local", "dim"}]}]}, "stages": [[unit, …]] if there are several; of a hybrid "data" in place of "tensor", "batch" and
/// "bytes_of_step": {"activations", "gradients"}
nlohmann::json to_json(const Graph& graph, const OnMesh& mesh);

}  // namespace paceline::graph
