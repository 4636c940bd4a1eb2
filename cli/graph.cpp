// paceline graph NETWORK [model.key=value …] [--mesh tensor=2 | --mesh data=4 --hybrid auto]
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/comm/mesh.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/split_table.h"
#include "paceline/graph/stages.h"
#include "paceline/graph/table.h"

namespace paceline::cli {

namespace {

graph::TensorSplit hybrid_of(const graph::Graph& graph, const comm::MeshSizes& mesh, const std::string& hybrid, std::int64_t batch) {
  if (mesh.data < 2 || mesh.tensor > 1 || mesh.pipeline > 1)
    throw ConfigError("--hybrid needs two or more data-parallel workers and no other axis; use for example --mesh data=4");
  return graph::hybrid_split(graph, hybrid, mesh.data, batch);
}

/// The stages of a run whose memory nothing limits.
std::vector<graph::Units> stages_of(const graph::Graph& graph, const comm::MeshSizes& mesh) {
  return mesh.pipeline > 1 ? graph::cut_stages(graph::counted_costs(graph), {.ranks = mesh.pipeline}) : std::vector<graph::Units>();
}

graph::OnMesh on_mesh(const graph::Graph& graph, const comm::MeshSizes& mesh, const std::string& hybrid, bool sequence,
                      std::int64_t batch) {
  if (mesh.pipeline == 0 || mesh.tensor == 0)
    throw ConfigError(
        "a size of 0 is the rest of the ranks, and this command knows no number of ranks; write the size, as in --mesh tensor=2");
  if (!hybrid.empty()) return {.split = hybrid_of(graph, mesh, hybrid, batch), .data = mesh.data};
  const int data = std::max(mesh.data, 1);
  for (const graph::Parameter& parameter : graph.parameters())
    if (parameter.spread) graph::check_experts(parameter.shape[0], data);
  return {.split = graph::tensor_split(graph, mesh.tensor, sequence), .stages = stages_of(graph, mesh), .data = data};
}

}  // namespace

Action add_graph(CLI::App& app) {
  struct Flags {
    std::string network, mesh, hybrid;
    std::int64_t batch = 256;
    std::vector<std::string> settings;
    bool json = false, sequence = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("NETWORK", flags->network, "one of `paceline list networks`")->required();
  app.add_option("SETTINGS", flags->settings, "settings of the network as model.key=value");
  app.add_option("--mesh", flags->mesh, "show how ranks share the layers, for example tensor=2, pipeline=4 or data=4")->type_name(kMesh);
  app.add_flag("--sequence", flags->sequence,
               "with --mesh: sequence parallelism, which splits activations by position between tensor-parallel layers");
  app.add_option("--hybrid", flags->hybrid,
                 "with --mesh data=N: the layers that data-parallel workers share, written as in parallel.hybrid")
      ->type_name("auto|NAME,...");
  app.add_option("--batch", flags->batch, "with --hybrid: samples per step over all workers")->check(whole_number(1));
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline graph resnet50", "paceline graph resnet18 model.input=[3,32,32] model.classes=10",
                     "paceline graph gpt model.layers=12 model.width=768 model.heads=12 model.classes=50257 model.input=[1024]",
                     "paceline graph vgg16 --json", "paceline graph gpt --mesh tensor=2",
                     "paceline graph alexnet --mesh data=4 --hybrid auto --batch 256"});
  return [flags] {
    graph::ModelConfig model;
    Config config;
    config.bind("model", "the network", model);
    model.network = flags->network;
    for (const std::string& setting : flags->settings) config.set(setting);
    if (model.network != flags->network)
      throw ConfigError(
          fmt::format("model.network={} contradicts the network '{}' on the command line; leave it out", model.network, flags->network));
    const graph::Graph graph = graph::make_graph(model);
    if (flags->mesh.empty()) {
      if (!flags->hybrid.empty()) throw ConfigError("--hybrid needs the number of workers; add --mesh data=4");
      if (flags->sequence) throw ConfigError("--sequence needs the number of ranks; add --mesh tensor=2");
      if (flags->json) print_json(graph::to_json(graph));
      else std::cout << graph::layer_table(graph);
      return kDone;
    }
    const graph::OnMesh mesh = on_mesh(graph, comm::parse_mesh(flags->mesh), flags->hybrid, flags->sequence, flags->batch);
    if (flags->json) print_json(graph::to_json(graph, mesh));
    else std::cout << graph::split_table(graph, mesh);
    return kDone;
  };
}

}  // namespace paceline::cli
