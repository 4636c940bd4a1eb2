#include "paceline/graph/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "paceline/base/text.h"

namespace paceline::graph {

std::string layer_table(const Graph& graph) {
  std::size_t name_width = 4, output_width = 6;
  for (const Layer& layer : graph.layers()) {
    name_width = std::max(name_width, layer.name.size());
    output_width = std::max(output_width, to_string(layer.output).size());
  }
  std::string text;
  const auto row = [&](std::string_view name, std::string_view kind, std::string_view output, std::string_view parameters,
                       std::string_view macs, std::string_view bytes) {
    fmt::format_to(std::back_inserter(text), "{:<{}}  {:<12}  {:>{}}  {:>13}  {:>17}  {:>16}\n", name, name_width, kind, output,
                   output_width, parameters, macs, bytes);
  };
  row("name", "kind", "output", "parameters", "MACs", "activation bytes");
  for (const Layer& layer : graph.layers())
    row(layer.name, name_of(layer.kind), to_string(layer.output), show_count(layer.parameters), show_count(layer.macs),
        show_count(layer.activation_bytes));

  const Counts counts = graph.counts();
  fmt::format_to(std::back_inserter(text),
                 "\n{}, input {}: {} parameters, {:.4g} GMAC, fp32 gradient {:.4g} MB, activations {:.4g} MB per sample\n", graph.network(),
                 to_string(graph.input()), show_count(graph.parameter_count()), static_cast<double>(graph.macs()) / 1e9,
                 static_cast<double>(graph.parameter_count()) * 4 / 1e6, static_cast<double>(graph.activation_bytes()) / 1e6);
  fmt::format_to(std::back_inserter(text), "{} conv, {} fc, {} pool\n", counts.conv, counts.fc, counts.pool);
  return text;
}

nlohmann::json to_json(const Graph& graph) {
  const Counts counts = graph.counts();
  auto layers = nlohmann::json::array();
  for (const Layer& layer : graph.layers())
    layers.push_back({{"name", layer.name},
                      {"kind", name_of(layer.kind)},
                      {"output", layer.output},
                      {"parameters", layer.parameters},
                      {"macs", layer.macs},
                      {"activation_bytes", layer.activation_bytes},
                      {"gradient_bytes", layer.gradient_bytes}});
  return {{"network", graph.network()},
          {"input", graph.input()},
          {"parameters", graph.parameter_count()},
          {"macs", graph.macs()},
          {"counts", {{"conv", counts.conv}, {"fc", counts.fc}, {"pool", counts.pool}}},
          {"layers", std::move(layers)}};
}

}  // namespace paceline::graph
