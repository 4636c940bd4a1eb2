// paceline graph NETWORK [model.key=value …]
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/table.h"

namespace paceline::cli {

Action add_graph(CLI::App& app) {
  struct Flags {
    std::string network;
    std::vector<std::string> settings;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("NETWORK", flags->network, "one of `paceline list`'s networks")->required();
  app.add_option("SETTINGS", flags->settings, "settings of the network as model.key=value");
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline graph resnet50", "paceline graph resnet18 model.input=[3,32,32] model.classes=10",
                     "paceline graph gpt model.layers=12 model.width=768 model.heads=12 model.classes=50257 model.input=[1024]",
                     "paceline graph vgg16 --json"});
  return [flags] {
    graph::ModelConfig model;
    Config config;
    config.bind("model", "the network", model);
    model.network = flags->network;
    for (const std::string& setting : flags->settings) config.set(setting);
    if (model.network != flags->network)
      throw ConfigError(
          fmt::format("model.network={} is not the network '{}' that is asked for; leave it out", model.network, flags->network));
    const graph::Graph graph = graph::make_graph(model);
    if (flags->json) print_json(graph::to_json(graph));
    else std::cout << graph::layer_table(graph);
    return kDone;
  };
}

}  // namespace paceline::cli
