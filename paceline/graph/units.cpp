#include "paceline/graph/units.h"

#include <algorithm>
#include <cctype>

namespace paceline::graph {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

/// "transformer.h.3.mlp.c_fc" is in block "transformer.h.3", "Conv2d_1a.conv" in "Conv2d_1a", "features.12" is a block by itself.
std::string block_of(const std::string& layer) {
  for (std::size_t begin = 0, dot = layer.find('.'); dot != std::string::npos; begin = dot + 1, dot = layer.find('.', begin))
    if (is_number(std::string_view(layer).substr(begin, dot - begin))) return layer.substr(0, dot);
  const std::size_t last = layer.rfind('.');
  return last == std::string::npos || is_number(std::string_view(layer).substr(last + 1)) ? layer : layer.substr(0, last);
}

/// How many outputs of layers before `layer` are read by it or by later layers.
std::size_t crossing(const Graph& graph, std::size_t layer, std::size_t end) {
  std::vector<bool> read(layer, false);
  for (std::size_t i = layer; i < end; ++i)
    for (const int input : graph.layers()[i].inputs)
      if (static_cast<std::size_t>(input) < layer) read[static_cast<std::size_t>(input)] = true;
  return static_cast<std::size_t>(std::ranges::count(read, true));
}

}  // namespace

std::vector<Unit> units_of(const Graph& graph) {
  const auto& layers = graph.layers();
  const auto end = static_cast<std::size_t>(graph.logits()) + 1;
  std::vector<Unit> units;
  for (std::size_t i = 1; i < end; ++i) {
    const std::string block = block_of(layers[i].name);
    const bool normalises_before = layers[i].kind == Kind::batch_norm && layers[i - 1].kind == Kind::conv;  // part of that convolution
    const bool begins = layers[i].parameters > 0 && !normalises_before && crossing(graph, i, end) == 1;
    const bool first_with_parameters = std::ranges::none_of(units, [&](const Unit& unit) {
      return std::any_of(layers.begin() + static_cast<std::ptrdiff_t>(unit.first), layers.begin() + static_cast<std::ptrdiff_t>(i),
                         [](const Layer& layer) { return layer.parameters > 0; });
    });
    if (units.empty()) units.push_back({block, i, i});
    else if (first_with_parameters && layers[i].parameters > 0) units.back().name = block;
    else if (begins && block != units.back().name) {
      const bool taken = std::ranges::find(units, block, &Unit::name) != units.end();  // "transformer.ln_f" behind "transformer.h.3"
      units.push_back({taken ? layers[i].name : block, i, i});
    }
    units.back().last = i + 1;
  }
  return units;
}

}  // namespace paceline::graph
