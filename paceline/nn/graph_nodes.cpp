// The nodes of a GraphModule: which op computes a layer, with which weights, and what it may overwrite.
#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/ops/experts.h"
#include "paceline/nn/ops/fused_norm.h"
#include "paceline/nn/ops/tensor_parallel.h"

namespace paceline::nn {
namespace {

using graph::Kind;

}  // namespace

std::vector<bool> GraphModule::overwritable_inputs() const {
  const auto& layers = graph_.layers();
  std::vector<int> readers(layers.size(), 0);
  for (const graph::Layer& layer : layers)
    for (int input : layer.inputs) ++readers[static_cast<std::size_t>(input)];
  std::vector<bool> result(layers.size(), false);
  for (std::size_t i = 1; i < begins_.back(); ++i) {
    const auto source = static_cast<std::size_t>(layers[i].inputs[0]);
    const bool same_unit = std::ranges::none_of(begins_, [&](std::size_t begin) { return source < begin && begin <= i; });
    result[i] = op_kind(layers[i].kind).can_overwrite_input && source != 0 && same_unit && readers[source] == 1 &&
                op_kind(layers[source].kind).output_may_be_overwritten;
  }
  return result;
}

std::unique_ptr<Op> GraphModule::make_op(std::size_t layer, bool in_place) const {
  if (graph_.layers()[layer].kind == Kind::experts) {
    std::unique_ptr<Op> experts = make_spread_experts(graph_.layers()[layer], experts_axis_.get());
    return axis_ && split_.sequence ? with_whole_sequences(std::move(experts), *axis_) : std::move(experts);
  }
  if (axis_) return make_tensor_parallel_op(graph_, split_, layer, *axis_, in_place);
  return op_kind(graph_.layers()[layer].kind).make(graph_.layers()[layer], in_place);
}

void GraphModule::build_nodes() {
  const auto& layers = graph_.layers();
  const std::vector<bool> in_place = overwritable_inputs();
  nodes_.resize(begins_.back());
  last_use_.assign(nodes_.size(), 0);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    nodes_[i].inputs = layers[i].inputs;  // also for other ranks' layers: a tensor that crosses a border is kept until it is read
    const bool may_drop = layers[i].kind == Kind::dropout || layers[i].kind == Kind::attention;
    nodes_[i].draws = may_drop && layers[i].probability > 0;
    const graph::Form form = split_.layers[i].form;
    nodes_[i].exchanges = split_.hybrid && (form == graph::Form::column || form == graph::Form::row);
    nodes_[i].exchanges = nodes_[i].exchanges || layers[i].kind == Kind::experts;
    uses_chance_ = uses_chance_ || nodes_[i].draws;
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    for (std::size_t i = begins_[unit]; i < begins_[unit + 1] && holds(unit); ++i) nodes_[i].op = make_op(i, in_place[i]);

  std::size_t entry = 0, statistic = 0;
  for (const auto& [parameter, index, slice] : held_) {
    Node& node = nodes_.at(static_cast<std::size_t>(parameter.layer));
    if (!parameter.trainable) {
      node.weights.statistics.push_back(statistics_.parameter(statistic++));
      continue;
    }
    if (node.weights.values.empty()) node.first_entry = entry;
    // Batch norms use their weights from the arena if that has full precision; everything else computes with the copy.
    const bool wide = arena_.parameters().scalar_type() == c10::kFloat || arena_.parameters().scalar_type() == c10::kDouble;
    const bool copy = compute_copy_.defined() && (!wide || layers[static_cast<std::size_t>(parameter.layer)].kind != Kind::batch_norm);
    node.weights.values.push_back(copy ? arena_.view(compute_copy_, entry) : arena_.parameter(entry));
    node.weights.gradients.push_back(arena_.gradient(entry));
    node.last_entry = ++entry;
  }

  tie();
  if (fuse_norms_) fuse_norms();
  fuse_rows();
  for (std::size_t i = 1; i < nodes_.size(); ++i)
    for (int input : nodes_[i].inputs) last_use_[static_cast<std::size_t>(input)] = static_cast<int>(i);

  // The gradient of an input is needed if there are parameters before it.
  std::vector<bool> depends(nodes_.size(), false);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    nodes_[i].wants_input = false;
    for (int input : nodes_[i].inputs) nodes_[i].wants_input = nodes_[i].wants_input || depends[static_cast<std::size_t>(input)];
    if (nodes_[i].sum >= 0) depends[static_cast<std::size_t>(nodes_[i].sum)] = nodes_[i].wants_input;
    depends[i] = nodes_[i].wants_input || !nodes_[i].weights.values.empty() || (!nodes_[i].op && layers[i].parameters > 0);
  }
}

// A layer that is tied to an embedding's table uses the table in place. If another stage of a pipeline has the embedding, this stage has a
// copy, which is sent with every pass, and memory for the layer's part of the gradient, which is sent back (pipeline_pass.h).
void GraphModule::tie() {
  const int head = graph_.tied();
  if (head < 0 || !holds(unit_of(head))) return;
  Node& node = nodes_[static_cast<std::size_t>(head)];
  if (holds_tied()) {
    const int table = graph_.layers()[static_cast<std::size_t>(head)].table;
    const Weights& weights = nodes_[static_cast<std::size_t>(table)].weights;
    node.weights.values = {weights.values[0]}, node.weights.gradients = {weights.gradients[0]};
    if (unit_of(table) != unit_of(head)) units_[unit_of(head)].borrows = unit_of(table);
    return;
  }
  const graph::Layer local = graph::local_layer(graph_, split_, static_cast<std::size_t>(head), axis_ ? axis_->rank() : 0);
  const std::int64_t features = graph_.layers()[static_cast<std::size_t>(local.inputs[0])].output.back();
  const auto make = [&](tensor::Role role, const at::TensorOptions& options, Tensors& place) {
    const at::Tensor flat = tensor::allocate_pages(local.channels * features, options);
    place = {flat.view({local.channels, features})};
    return arena_.back(role, flat);
  };
  table_copy_ = make(tensor::Role::parameter, arena_.parameters().options().dtype(compute_), node.weights.values);
  table_gradient_ = make(tensor::Role::gradient, arena_.gradients().options(), node.weights.gradients);
}

std::optional<TiedWeight> GraphModule::tied() const {
  const int head = graph_.tied();
  if (head < 0 || holds_tied()) return std::nullopt;
  const int table = graph_.layers()[static_cast<std::size_t>(head)].table;
  const bool trains = holds(unit_of(table));
  if (!trains && !holds(unit_of(head))) return TiedWeight{};
  const Node& node = nodes_[static_cast<std::size_t>(trains ? table : head)];
  return TiedWeight{node.weights.values[0], node.weights.gradients[0], trains ? std::optional(node.first_entry) : std::nullopt};
}

// On a GPU, a batch norm, the relu after it and the residual sum between them are computed in the same kernels. The node of the last of
// these layers does the work of all.
void GraphModule::fuse_norms() {
  const auto& layers = graph_.layers();
  std::vector<int> readers(layers.size(), 0);
  for (const graph::Layer& layer : layers)
    for (int input : layer.inputs) ++readers[static_cast<std::size_t>(input)];
  const auto norm_at = [&](int index) {  // a norm that nothing else reads, not yet part of another node
    const auto i = static_cast<std::size_t>(index);
    return layers[i].kind == Kind::batch_norm && readers[i] == 1 && nodes_[i].op && can_fuse(layers[i], device_, compute_);
  };
  const auto fuse = [&](int norm, std::size_t into, const FusedNorm& with, std::vector<int> inputs) {
    Node taken = std::move(nodes_[static_cast<std::size_t>(norm)]);
    nodes_[static_cast<std::size_t>(norm)] = {};
    taken.op = make_fused_norm(layers[static_cast<std::size_t>(norm)], with);
    taken.inputs = std::move(inputs);
    nodes_[into] = std::move(taken);
  };
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    if (layers[i].kind != Kind::relu) continue;
    const int before = layers[i].inputs[0];
    if (norm_at(before)) {
      fuse(before, i, {.relu = true}, {layers[static_cast<std::size_t>(before)].inputs[0]});
      continue;
    }
    const graph::Layer& sum = layers[static_cast<std::size_t>(before)];
    if (sum.kind != Kind::add || readers[static_cast<std::size_t>(before)] != 1) continue;
    for (std::size_t side = 0; side < 2; ++side) {
      if (!norm_at(sum.inputs[side])) continue;
      fuse(sum.inputs[side], i, {.relu = true, .residual = true},
           {layers[static_cast<std::size_t>(sum.inputs[side])].inputs[0], sum.inputs[1 - side]});
      nodes_[static_cast<std::size_t>(before)] = {};
      break;
    }
  }
  for (std::size_t i = 1; i < nodes_.size(); ++i)  // those with nothing to fuse
    if (norm_at(static_cast<int>(i))) fuse(static_cast<int>(i), i, {}, {layers[i].inputs[0]});
}

}  // namespace paceline::nn
