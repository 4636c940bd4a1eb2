#include "paceline/train/mesh_diagram.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/text.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/split_table.h"
#include "paceline/graph/stages.h"
#include "paceline/nn/graph_module.h"
#include "paceline/observe/formatting.h"

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

/// "ranks 0 1: 1, 2; ranks 2 3: 3, 4": which data-parallel workers hold which experts of a layer. They are those of graph::part_of().
std::string experts_of(const comm::Mesh& mesh, int experts) {
  std::vector<std::string> groups;
  for (int data = 0; data < mesh.sizes().data; ++data) {
    std::vector<int> ranks;
    for (int rank = 0; rank < mesh.everyone().size(); ++rank)
      if (mesh.place_of(rank).data == data) ranks.push_back(rank);
    const graph::Slice::Run own = graph::part_of(experts, mesh.sizes().data, data);
    const std::string numbers =
        own.count == 1 ? fmt::format("{}", own.first) : fmt::format("{} to {}", own.first, own.first + own.count - 1);
    groups.push_back(fmt::format("{} {}: {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, " "), numbers));
  }
  return fmt::format("experts 0 to {} of a layer: {}", experts - 1, fmt::join(groups, ", "));
}

/// Adds a line, at spaces cut into as many as fit into a header.
void add_broken(std::vector<std::string>& lines, const std::string& line) {
  constexpr int kColumns = 60;  // of a value in a header of 80 columns
  std::string part;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (!part.empty() && observe::columns(part) + 1 + observe::columns(word) > kColumns) lines.push_back(std::exchange(part, " "));
    part += (part.empty() ? "" : " ") + word;
  }
  lines.push_back(part);
}

}  // namespace

std::vector<std::string> describe_mesh(const comm::Mesh& mesh, const nn::Model& model, const std::vector<nn::Units>& stages, int zero) {
  const comm::MeshSizes& sizes = mesh.sizes();
  std::vector<std::string> lines;
  if (mesh.everyone().size() == 1) return lines;
  const bool splits = sizes.pipeline > 1 || sizes.tensor > 1;
  if (splits) lines.push_back(fmt::format("data {} × pipeline {} × tensor {}", sizes.data, sizes.pipeline, sizes.tensor));
  else add_broken(lines, fmt::format("data {}: ranks {}: {}", sizes.data, ranks_of(mesh, 0), names_of(model, {model.all()})));
  for (int stage = 0; splits && stage < sizes.pipeline; ++stage) {
    const auto chunks = sizes.pipeline > 1 ? graph::held_by(stages, sizes.pipeline, stage) : std::vector{model.all()};
    add_broken(lines, fmt::format("stage {}: ranks {}: {}", stage, ranks_of(mesh, stage), names_of(model, chunks)));
  }
  if (sizes.tensor > 1) lines.push_back(fmt::format("a rank has 1/{} of every layer that is split", sizes.tensor));
  if (const auto* network = dynamic_cast<const nn::GraphModule*>(&model.network())) {
    if (network->split().hybrid)
      add_broken(lines, fmt::format("hybrid over data {}: {}", sizes.data, graph::describe_hybrid(network->graph(), network->split())));
    if (network->split().splits_anything())
      for (const std::string& line : graph::layers_left_whole(network->graph(), network->split())) add_broken(lines, line);
    const auto& layers = network->graph().layers();
    const auto spread = std::ranges::find(layers, graph::Kind::experts, &graph::Layer::kind);
    if (spread != layers.end() && sizes.data > 1) add_broken(lines, experts_of(mesh, static_cast<int>(spread->experts)));
  }
  if (zero > 0 && sizes.data > 1) lines.push_back(fmt::format("zero {}: a rank has 1/{} of the {}", zero, sizes.data, kept_once(zero)));
  return lines;
}

}  // namespace paceline::train
