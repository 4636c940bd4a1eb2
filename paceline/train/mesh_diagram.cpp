#include "paceline/train/mesh_diagram.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/text.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/stages.h"
#include "paceline/nn/graph_module.h"

namespace paceline::train {
namespace {

/// "0 1 | 2 3": the ranks of a stage, those that share its layers next to each other.
std::string ranks_of(const comm::Mesh& mesh, int stage) {
  std::vector<std::string> groups;
  for (int data = 0; data < mesh.sizes().data; ++data) {
    std::vector<int> ranks;
    for (int tensor = 0; tensor < mesh.sizes().tensor; ++tensor)
      ranks.push_back(mesh.rank_at({.data = data, .pipeline = stage, .tensor = tensor}));
    groups.push_back(fmt::format("{}", fmt::join(ranks, " ")));
  }
  return fmt::format("{}", fmt::join(groups, " | "));
}

/// "conv1 … layer2.1", for each chunk.
std::string names_of(const nn::Model& model, const std::vector<nn::Units>& chunks) {
  std::vector<std::string> names;
  for (const nn::Units& chunk : chunks) {
    const std::string &first = model.units()[chunk.first].name, &last = model.units()[chunk.last - 1].name;
    names.push_back(chunk.last - chunk.first > 1 ? first + " … " + last : first);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string_view kept_once(int zero) {
  return zero == 1 ? "moments" : zero == 2 ? "gradients and moments" : "parameters, gradients and moments";
}

}  // namespace

std::vector<std::string> describe_mesh(const comm::Mesh& mesh, const nn::Model& model, const std::vector<nn::Units>& stages, int zero) {
  const comm::MeshSizes& sizes = mesh.sizes();
  const bool splits = sizes.pipeline > 1 || sizes.tensor > 1;
  std::vector<std::string> lines;
  if (splits) lines.push_back(fmt::format("data {} × pipeline {} × tensor {}", sizes.data, sizes.pipeline, sizes.tensor));
  for (int stage = 0; splits && stage < sizes.pipeline; ++stage) {
    const auto chunks = sizes.pipeline > 1 ? graph::held_by(stages, sizes.pipeline, stage) : std::vector{model.all()};
    lines.push_back(fmt::format("stage {}: ranks {}: {}", stage, ranks_of(mesh, stage), names_of(model, chunks)));
  }
  if (sizes.tensor > 1) lines.push_back(fmt::format("a rank has 1/{} of every layer that is split", sizes.tensor));
  const auto* network = dynamic_cast<const nn::GraphModule*>(&model.network());
  if (network && network->split().hybrid)
    lines.push_back(fmt::format("hybrid over data {}: {}", sizes.data, graph::describe_hybrid(network->graph(), network->split())));
  if (zero > 0 && sizes.data > 1) lines.push_back(fmt::format("zero {}: a rank has 1/{} of the {}", zero, sizes.data, kept_once(zero)));
  return lines;
}

}  // namespace paceline::train
