// paceline graph NETWORK [model.key=value …] [--mesh tensor=2 | --mesh data=4 --hybrid auto]
#include <fmt/format.h>

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

using Json = nlohmann::json;

graph::TensorSplit hybrid_of(const graph::Graph& graph, const comm::MeshSizes& mesh, const std::string& hybrid, std::int64_t batch) {
  if (mesh.data < 2 || mesh.tensor > 1 || mesh.pipeline > 1)
    throw ConfigError("--hybrid needs two or more data-parallel workers and no other axis; use for example --mesh data=4");
  return graph::hybrid_split(graph, hybrid, mesh.data, batch);
}

/// The stages of a run whose memory nothing limits.
std::vector<graph::Units> stages_of(const graph::Graph& graph, const comm::MeshSizes& mesh) {
  return mesh.pipeline > 1 ? graph::cut_stages(graph::counted_costs(graph), {.ranks = mesh.pipeline}) : std::vector<graph::Units>();
}

Json stages_json(const graph::Graph& graph, const std::vector<graph::Units>& stages) {
  const std::vector<graph::UnitCost> units = graph::counted_costs(graph);
  Json rows = Json::array();
  for (const graph::Units& stage : stages) {
    Json& names = rows.emplace_back(Json::array());
    for (std::size_t unit = stage.first; unit < stage.last; ++unit) names.push_back(units[unit].name);
  }
  return rows;
}

/// A line for each stage, with its share of the time of a step.
std::string stages_text(const graph::Graph& graph, const std::vector<graph::Units>& stages) {
  const std::vector<graph::UnitCost> units = graph::counted_costs(graph);
  const auto time_of = [&](const graph::Units& range) {
    double sum = 0;
    for (std::size_t unit = range.first; unit < range.last; ++unit) sum += units[unit].time;
    return sum;
  };
  std::string text;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string &first = units[stages[i].first].name, &last = units[stages[i].last - 1].name;
    text += fmt::format("stage {}: {}, {:.0f}% of the time\n", i, first == last ? first : first + " … " + last,
                        100 * time_of(stages[i]) / time_of({0, units.size()}));
  }
  return text;
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
  app.add_option("--mesh", flags->mesh, "show how ranks share the layers, for example tensor=2, pipeline=4 or data=4");
  app.add_flag("--sequence", flags->sequence,
               "with --mesh: sequence parallelism, which splits activations by position between tensor-parallel layers");
  app.add_option("--hybrid", flags->hybrid,
                 "with --mesh data=N: the layers that data-parallel workers share, written as in parallel.hybrid");
  app.add_option("--batch", flags->batch, "with --hybrid: samples per step over all workers")->check(CLI::PositiveNumber);
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
    const comm::MeshSizes mesh = comm::parse_mesh(flags->mesh);
    const graph::TensorSplit split = flags->hybrid.empty() ? graph::tensor_split(graph, mesh.tensor, flags->sequence)
                                                           : hybrid_of(graph, mesh, flags->hybrid, flags->batch);
    const std::vector<graph::Units> stages = stages_of(graph, mesh);
    if (flags->json) {
      Json document = graph::to_json(graph, split);
      if (!stages.empty()) document["stages"] = stages_json(graph, stages);
      print_json(document);
    } else {
      std::cout << graph::split_table(graph, split, stages.size()) << stages_text(graph, stages);
    }
    return kDone;
  };
}

}  // namespace paceline::cli
