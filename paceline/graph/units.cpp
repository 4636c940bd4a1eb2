#include "paceline/graph/units.h"

#include <algorithm>
#include <cctype>
#include <numeric>

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

/// For each layer, how many outputs of earlier layers are read by it or by later layers.
std::vector<int> crossings(const Graph& graph, std::size_t end) {
  std::vector<std::size_t> last(end, 0);  // that reads a layer's output
  for (std::size_t i = 1; i < end; ++i)
    for (const int input : graph.layers()[i].inputs) last[static_cast<std::size_t>(input)] = i;
  std::vector<int> counts(end + 1, 0);
  for (std::size_t i = 0; i < end; ++i)
    if (last[i] > i) ++counts[i + 1], --counts[last[i] + 1];
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
  return counts;
}

}  // namespace

std::vector<Unit> units_of(const Graph& graph) {
  const auto& layers = graph.layers();
  const auto end = static_cast<std::size_t>(graph.logits()) + 1;
  const std::vector<int> crossing = crossings(graph, end);
  std::vector<Unit> units;
  bool has_parameters = false;  // any layer so far
  for (std::size_t i = 1; i < end; ++i) {
    const std::string block = block_of(layers[i].name);
    const bool normalises_before = layers[i].kind == Kind::batch_norm && layers[i - 1].kind == Kind::conv;  // part of that convolution
    const bool begins = layers[i].parameters > 0 && !normalises_before && crossing[i] == 1;
    if (units.empty()) units.push_back({block, i, i});
    else if (!has_parameters && layers[i].parameters > 0) units.back().name = block;
    else if (begins && block != units.back().name) {
      const bool taken = std::ranges::find(units, block, &Unit::name) != units.end();  // "transformer.ln_f" after "transformer.h.3"
      units.push_back({taken ? layers[i].name : block, i, i});
    }
    units.back().last = i + 1;
    has_parameters = has_parameters || layers[i].parameters > 0;
  }
  return units;
}

}  // namespace paceline::graph
