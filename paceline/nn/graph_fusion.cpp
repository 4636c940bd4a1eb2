// Layers of a transformer that one node of a GraphModule computes together.
#include "paceline/nn/graph_module.h"
#include "paceline/nn/ops/fused_rows.h"
#include "paceline/nn/ops/tensor_parallel.h"

namespace paceline::nn {

// Within a unit, fuses a sum of two into the layer norm that reads it first, and a product with a bias into the GELU if nothing else reads
// it. With tensor parallelism, whole layers may still be fused, and so may a product of some channels and its GELU. Not if ranks share
// positions or samples, because they communicate between these layers and a worker may have no samples.
void GraphModule::fuse_rows() {
  using graph::Kind;
  if (spread_ || split_.sequence || split_.hybrid) return;
  const auto is_whole = [this](std::size_t layer) {
    const graph::LayerSplit& how = split_.layers[layer];
    return !axis_ || (how.form == graph::Form::whole && how.input == graph::Layout::whole && how.output == graph::Layout::whole);
  };
  const auto& layers = graph_.layers();
  std::vector<int> readers(layers.size(), 0), first_reader(layers.size(), -1);
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const int input : layers[i].inputs)
      if (++readers[static_cast<std::size_t>(input)] == 1) first_reader[static_cast<std::size_t>(input)] = static_cast<int>(i);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    if (!nodes_[i].op || layers[i].inputs.size() != 1) continue;
    const int index = layers[i].inputs[0];
    const auto before = static_cast<std::size_t>(index);
    const graph::Layer& source = layers[before];
    if (!nodes_[before].op || unit_of(index) != unit_of(static_cast<int>(i))) continue;
    if (layers[i].kind == Kind::layer_norm && source.kind == Kind::add && source.inputs.size() == 2 &&
        first_reader[before] == static_cast<int>(i) && is_whole(i) && is_whole(before)) {
      nodes_[i].op = make_sum_and_norm(layers[i]);
      nodes_[i].inputs = source.inputs;
      nodes_[i].sum = index;
      nodes_[before] = {};
    } else if (layers[i].kind == Kind::gelu && source.kind == Kind::fc && source.bias && readers[before] == 1 &&
               (is_whole(before) || split_.layers[before].form == graph::Form::column)) {
      Node taken = std::move(nodes_[before]);
      nodes_[before] = {};
      taken.op = is_whole(before) ? make_fc_and_gelu() : make_tensor_parallel_fc_and_gelu(*axis_);
      nodes_[i] = std::move(taken);
    }
  }
}

}  // namespace paceline::nn
