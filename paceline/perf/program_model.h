// A network as step programs see it (schedule/program.h): for every unit, the part that one rank of a mesh holds, and the tensors that
// cross its border.
#pragma once

#include <string>

#include "paceline/graph/graph.h"
#include "paceline/schedule/program.h"

namespace paceline::perf {

/// The settings that determine which part of a network a rank holds.
struct Sharing {
  int data = 1, tensor = 1;
  bool sequence = false;        // the tensor axis shares positions, too
  bool joint_norms = false;     // batch norms see the samples of all data-parallel ranks
  std::string hybrid = "none";  // layers that data-parallel ranks share (graph/hybrid.h)
  std::int64_t batch = 1;       // samples of a step on all ranks; "auto" chooses the layers by it
};

/// ConfigError if this many ranks cannot share the network (graph/tensor_split.h, graph/hybrid.h).
schedule::ProgramModel program_model(const graph::Graph& graph, const Sharing& sharing);

}  // namespace paceline::perf
