#include "paceline/perf/program_model.h"

#include <algorithm>
#include <span>

#include "paceline/graph/hybrid.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/graph/units.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using LayerCollective = schedule::ProgramModel::LayerCollective;

constexpr std::int64_t kLine = 16;  // elements of a cache line; entries of the arena are padded to whole ones (tensor/arena.h)

Action::Exchange exchange_of(graph::Exchange exchange) {
  switch (exchange) {
    case graph::Exchange::all_gather: return Action::Exchange::all_gather;
    case graph::Exchange::reduce_scatter: return Action::Exchange::reduce_scatter;
    case graph::Exchange::all_to_all: return Action::Exchange::all_to_all;
    default: return Action::Exchange::allreduce;
  }
}

/// `ranks`: how many ranks' samples are in one buffer, if data-parallel ranks combine their batches.
void add_collectives(std::vector<LayerCollective>& collectives, std::span<const graph::Traffic> traffic, Action::Axis axis,
                     std::int64_t ranks) {
  for (const graph::Traffic& each : traffic) {
    const bool whole = each.exchange != graph::Exchange::all_to_all;
    collectives.push_back(
        {.exchange = exchange_of(each.exchange), .axis = axis, .elements = each.bytes / 4 * (whole ? ranks : 1), .fixed = 0});
  }
}

/// Weight gradients that ranks must add up because each has seen only some positions: one tensor after the other, independent of the
/// samples.
void add_gradient_sums(std::vector<LayerCollective>& collectives, std::span<const graph::Parameter> parameters, std::size_t layer) {
  for (const graph::Parameter& parameter : parameters)
    if (parameter.trainable && static_cast<std::size_t>(parameter.layer) == layer)
      collectives.push_back({.exchange = Action::Exchange::allreduce,
                             .axis = Action::Axis::tensor,
                             .elements = 0,
                             .fixed = graph::elements(parameter.shape)});
}

/// Softmax over classes that ranks share (nn/split_loss.cpp): the largest logit of every row, three sums, and the index of the best class,
/// which has eight bytes.
void add_loss(std::vector<LayerCollective>& collectives, const graph::Graph& graph) {
  const std::int64_t rows = graph::elements(graph.output()) / graph.classes();
  for (const std::int64_t each : {1, 3, 2})
    collectives.push_back({.exchange = Action::Exchange::allreduce, .axis = Action::Axis::tensor, .elements = each * rows, .fixed = 0});
}

/// Batch norms over the samples of all data-parallel ranks (nn/joint_norm.cpp): the sum and number of a channel's values, then the sum of
/// their squares; in the backward pass, sums of two gradients. All are added up in fp32.
void add_joint_norm(std::vector<LayerCollective>& collectives, std::int64_t channels, bool backward) {
  const auto add = [&](std::int64_t count) {
    collectives.push_back(
        {.exchange = Action::Exchange::allreduce, .axis = Action::Axis::data, .elements = 0, .fixed = count, .element_bytes = 4});
  };
  if (backward) return add(2 * channels);
  add(channels + 1), add(channels);
}

/// Positions are sent to their experts, whose outputs are sent back.
void add_experts(std::vector<LayerCollective>& collectives, const graph::Layer& layer) {
  const LayerCollective there{.exchange = Action::Exchange::all_to_all,
                              .axis = Action::Axis::data,
                              .elements = layer.experts * graph::expert_slots(layer) * layer.output[1],
                              .fixed = 0};
  collectives.insert(collectives.end(), 2, there);
}

}  // namespace

schedule::ProgramModel program_model(const graph::Graph& graph, const Sharing& sharing) {
  const bool hybrid = sharing.hybrid != "none" && sharing.data > 1;
  const graph::TensorSplit split = hybrid ? graph::hybrid_split(graph, sharing.hybrid, sharing.data, sharing.batch)
                                          : graph::tensor_split(graph, sharing.tensor, sharing.sequence && sharing.tensor > 1);
  const std::vector<graph::Unit> units = graph::units_of(graph);
  const std::vector<graph::Parameter> parameters = graph.parameters();
  const Action::Axis axis = hybrid ? Action::Axis::data : Action::Axis::tensor;
  const std::int64_t ranks = hybrid ? sharing.data : 1;
  const auto joins = [&](std::size_t i) {
    return sharing.joint_norms && sharing.data > 1 && graph.layers()[i].kind == graph::Kind::batch_norm;
  };
  const auto channels = [&](std::size_t i) { return (hybrid ? graph.layers()[i] : graph::local_layer(graph, split, i, 0)).output[0]; };
  schedule::ProgramModel model;
  if (split.splits_logits(graph) && !hybrid) add_loss(model.loss, graph);
  for (const graph::Unit& unit : units) {
    schedule::ProgramModel::Unit& made = model.units.emplace_back();
    const graph::Layer last = hybrid ? graph.layers()[unit.last - 1] : graph::local_layer(graph, split, unit.last - 1, 0);
    made.border = graph::elements(last.output);
    for (std::size_t i = unit.first; i < unit.last; ++i) {
      add_collectives(made.forward, split.layers[i].forward, axis, ranks);
      if (graph.layers()[i].kind == graph::Kind::experts && sharing.data > 1) add_experts(made.forward, graph.layers()[i]);
      if (joins(i)) add_joint_norm(made.forward, channels(i), /*backward=*/false);
    }
    for (std::size_t i = unit.last; i-- > unit.first;) {
      if (joins(i)) add_joint_norm(made.backward, channels(i), /*backward=*/true);
      std::span<const graph::Traffic> backward = split.layers[i].backward;
      if (split.layers[i].sums_gradients) backward = backward.first(backward.size() - 1);
      add_collectives(made.backward, backward, axis, ranks);
      if (graph.layers()[i].kind == graph::Kind::experts && sharing.data > 1) add_experts(made.backward, graph.layers()[i]);
      if (split.layers[i].sums_gradients) add_gradient_sums(made.backward, parameters, i);
    }
  }
  for (const graph::LocalTensor& tensor : graph::local_tensors(graph, split, 0)) {
    if (!tensor.whole.trainable) continue;
    const auto layer = static_cast<std::size_t>(tensor.whole.layer);
    const auto unit = std::ranges::find_if(units, [&](const graph::Unit& each) { return layer < each.last; });
    const bool experts = tensor.whole.spread && sharing.data > 1;
    const std::int64_t held = graph::elements(tensor.shape) / (experts ? sharing.data : 1);
    model.units[static_cast<std::size_t>(unit - units.begin())].tensors.push_back({.elements = (held + kLine - 1) / kLine * kLine,
                                                                                   .is_private = experts || (hybrid && tensor.slice),
                                                                                   .is_slice = !hybrid && tensor.slice});
  }
  if (const int head = graph.tied(); head >= 0) {
    const auto unit_of = [&](int layer) {
      const auto at = static_cast<std::size_t>(layer);
      return static_cast<int>(std::ranges::find_if(units, [&](const graph::Unit& each) { return at < each.last; }) - units.begin());
    };
    const int table = graph.layers()[static_cast<std::size_t>(head)].table;
    const graph::Layer local = graph::local_layer(graph, split, static_cast<std::size_t>(table), 0);
    model.tied = {.table = unit_of(table), .head = unit_of(head), .elements = local.vocabulary * local.channels};
  }
  return model;
}

}  // namespace paceline::perf
