// How ranks can split each kind of layer: the rules that tensor_split.h and hybrid.h apply to a network's description.
#pragma once

#include "paceline/graph/tensor_split.h"

namespace paceline::graph {

struct Rule {
  Kind kind;
  bool column = false;   // can be split by its output channels
  bool row = false;      // can be split by its input channels
  bool follows = false;  // treats each channel separately
};
Rule rule_of(const Layer& layer, const Shape& input);

const Shape& input_of(const Graph& graph, std::size_t layer);
/// For each layer, the layers that read its output.
std::vector<std::vector<std::size_t>> readers_of(const Graph& graph);
/// For each layer, whether anything before it is trained, so that the gradient of its input is needed.
std::vector<bool> trained_before(const Graph& graph);

/// Where the channels of a layer in column form go.
struct Partner {
  std::vector<std::size_t> between;  // layers that follow
  std::size_t layer = 0;             // can take row form, or is the loss
  bool is_loss = false;
};
std::optional<Partner> partner_of(const Graph& graph, const std::vector<std::vector<std::size_t>>& readers, std::size_t column);

/// A layer in column or row form, or one that follows: its layouts, and how its tensors are split.
LayerSplit split_as(const Graph& graph, std::size_t layer, Form form);

}  // namespace paceline::graph
