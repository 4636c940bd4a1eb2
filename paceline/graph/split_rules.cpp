#include "paceline/graph/split_rules.h"

#include <algorithm>

#include "paceline/graph/infer.h"

namespace paceline::graph {
namespace {

/// Kinds without a row need their whole input on every rank.
constexpr Rule kRules[] = {
    {.kind = Kind::fc, .column = true, .row = true},
    {.kind = Kind::conv, .column = true, .row = true, .follows = true},  // ungrouped; depthwise ones follow
    {.kind = Kind::batch_norm, .follows = true},
    {.kind = Kind::relu, .follows = true},
    {.kind = Kind::relu6, .follows = true},
    {.kind = Kind::gelu, .follows = true},
    {.kind = Kind::tanh, .follows = true},
    {.kind = Kind::sigmoid, .follows = true},
    {.kind = Kind::dropout, .follows = true},  // with its channels of the mask
    {.kind = Kind::max_pool, .follows = true},
    {.kind = Kind::avg_pool, .follows = true},
    {.kind = Kind::global_pool, .follows = true},
    {.kind = Kind::flatten, .follows = true},       // channels come first, so their parts stay contiguous
    {.kind = Kind::softmax_loss, .follows = true},  // the largest logit, the sum and the target's logit are added up
    // attention, by heads: c_attn in column form, c_proj in row form; embedding, by tokens of the vocabulary: row form
};

}  // namespace

Rule rule_of(const Layer& layer, const Shape& input) {
  const auto* row = std::ranges::find(kRules, layer.kind, &Rule::kind);
  if (row == std::end(kRules)) return {.kind = layer.kind};
  Rule rule = *row;
  if (layer.kind == Kind::conv) {
    rule.column = rule.row = layer.groups == 1;
    rule.follows = layer.groups > 1 && layer.groups == input[0];
  }
  if (layer.table >= 0) rule.row = false;  // a table is split by its tokens
  return rule;
}

const Shape& input_of(const Graph& graph, std::size_t layer) {
  return graph.layers()[static_cast<std::size_t>(graph.layers()[layer].inputs[0])].output;
}

std::vector<std::vector<std::size_t>> readers_of(const Graph& graph) {
  std::vector<std::vector<std::size_t>> readers(graph.layers().size());
  for (std::size_t i = 0; i < readers.size(); ++i)
    for (const int input : graph.layers()[i].inputs) readers[static_cast<std::size_t>(input)].push_back(i);
  return readers;
}

std::vector<bool> trained_before(const Graph& graph) {
  std::vector<bool> trained(graph.layers().size(), false);
  for (std::size_t i = 1; i < trained.size(); ++i)
    for (const int input : graph.layers()[i].inputs) {
      const auto source = static_cast<std::size_t>(input);
      trained[i] = trained[i] || trained[source] || graph.layers()[source].parameters > 0;
    }
  return trained;
}

std::optional<Partner> partner_of(const Graph& graph, const std::vector<std::vector<std::size_t>>& readers, std::size_t column) {
  Partner partner;
  for (std::size_t at = column; readers[at].size() == 1;) {
    const std::size_t next = readers[at][0];
    const Rule rule = rule_of(graph.layers()[next], graph.layers()[at].output);
    partner.layer = next, partner.is_loss = graph.layers()[next].kind == Kind::softmax_loss;
    if (rule.row || partner.is_loss) return partner;
    if (!rule.follows) break;
    partner.between.push_back(next);
    at = next;
  }
  return std::nullopt;
}

LayerSplit split_as(const Graph& graph, std::size_t layer, Form form) {
  LayerSplit split;
  split.form = form;
  split.input = form == Form::row || form == Form::follows ? Layout::channels : Layout::whole;
  split.output = form == Form::column || form == Form::follows ? Layout::channels : Layout::whole;
  split.cuts.resize(tensors_of(graph.layers()[layer], input_of(graph, layer)).size(), Cut{0});
  if (form == Form::row) {  // the bias is added once, after the sum
    split.cuts.assign(split.cuts.size(), std::nullopt);
    split.cuts.front() = Cut{1};
  }
  return split;
}

}  // namespace paceline::graph
