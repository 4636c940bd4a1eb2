#include "paceline/memory/share.h"

#include <algorithm>

#include "paceline/graph/hybrid.h"
#include "paceline/graph/tensor_split.h"

namespace paceline::memory {
namespace {

std::int64_t each_of(std::int64_t elements, std::int64_t parts) { return (elements + parts - 1) / parts; }

std::size_t unit_of(const std::vector<graph::Unit>& units, std::size_t layer) {
  return static_cast<std::size_t>(std::ranges::find_if(units, [&](const graph::Unit& each) { return layer < each.last; }) - units.begin());
}

}  // namespace

Share share_of(const graph::Graph& graph, const Plan& plan) {
  Share share{.layers = {}, .units = graph::units_of(graph), .parameters = {}, .statistics = {}, .spread = {}, .slots = {}};
  const bool hybrid = plan.hybrid != "none" && plan.data > 1;
  const graph::TensorSplit split =
      hybrid ? graph::hybrid_split(graph, plan.hybrid, plan.data, plan.batch > 0 ? plan.batch : plan.samples * plan.data)
             : graph::tensor_split(graph, plan.tensor, plan.sequence && plan.tensor > 1);
  const auto end = static_cast<std::size_t>(graph.logits()) + 1;
  // Part of the channels for the whole batch is as large as all channels for one worker's samples.
  for (std::size_t i = 0; i < end; ++i) {
    const graph::Layer& whole = graph.layers()[i];
    graph::Layer& local = share.layers.emplace_back(hybrid ? whole : graph::local_layer(graph, split, i, 0));
    if (whole.kind != graph::Kind::attention) continue;
    local.positions = whole.output[0];
    local.channels = whole.output.back() / whole.heads * local.heads;
  }
  share.split_loss = !hybrid && split.splits_logits(graph);
  share.parameters.assign(share.units.size(), 0), share.statistics.assign(share.units.size(), 0),
      share.spread.assign(share.units.size(), 0);
  for (const graph::LocalTensor& tensor_ : graph::local_tensors(graph, split, 0)) {
    const auto layer = static_cast<std::size_t>(tensor_.whole.layer);
    const bool experts = tensor_.whole.spread && plan.data > 1, spread = experts || (hybrid && tensor_.slice);
    auto& sums = spread ? share.spread : tensor_.whole.trainable ? share.parameters : share.statistics;
    sums[unit_of(share.units, layer)] += each_of(graph::elements(tensor_.shape), experts ? plan.data : 1);
  }
  share.slots.assign(share.units.size(), 0);
  for (std::size_t i = 0; i < end; ++i)
    if (const graph::Layer& layer = share.layers[i]; layer.kind == graph::Kind::experts) {
      std::int64_t& most = share.slots[unit_of(share.units, i)];
      most = std::max(most, layer.experts * graph::expert_slots(layer) * layer.output[1]);
    }
  if (const int head = graph.tied(); head >= 0) {
    const auto table = static_cast<std::size_t>(graph.layers()[static_cast<std::size_t>(head)].table);
    const graph::Layer& local = share.layers[table];
    share.tied = {unit_of(share.units, table), unit_of(share.units, static_cast<std::size_t>(head)), local.vocabulary * local.channels};
  }
  return share;
}

}  // namespace paceline::memory
