// The memory of a backward pass in addition to what was saved for it, unit by unit: the gradients between layers, and what a layer's
// kernels need.
#include <algorithm>
#include <set>

#include "paceline/graph/working_sets.h"
#include "paceline/memory/activations.h"

namespace paceline::memory {
namespace {

using graph::Kind;
using graph::Layer;

/// The gradients of layer outputs that are alive. Several layers may share one tensor: an add passes its gradient on to all its inputs.
class AliveGradients {
 public:
  explicit AliveGradients(std::size_t layers) : of_layer_(layers, kNone) {}

  std::int64_t bytes() const { return bytes_; }
  bool has(std::size_t layer) const { return of_layer_[layer] != kNone; }

  void make(std::size_t layer, std::int64_t bytes) {
    tensors_.push_back({bytes, 1});
    bytes_ += bytes;
    of_layer_[layer] = tensors_.size() - 1;
  }
  void share(std::size_t from, std::size_t with) {
    of_layer_[with] = of_layer_[from];
    ++tensors_[of_layer_[with]].holders;
  }
  void drop(std::size_t layer) {
    Tensor& tensor = tensors_[of_layer_[layer]];
    of_layer_[layer] = kNone;
    if (--tensor.holders == 0) bytes_ -= tensor.bytes;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Tensor {
    std::int64_t bytes;
    int holders;
  };
  std::vector<std::size_t> of_layer_;
  std::vector<Tensor> tensors_;
  std::int64_t bytes_ = 0;
};

/// Passes its gradient on unchanged, or as views of it.
bool passes_on(const Layer& layer) {
  return layer.kind == Kind::add || layer.kind == Kind::flatten || layer.kind == Kind::concat ||
         (layer.kind == Kind::dropout && layer.probability == 0);
}

/// The scores of a head that are computed together: a block of rows, and the keys that the last of these rows sees.
std::int64_t largest_block(std::int64_t time, bool causal) {
  const std::int64_t rows = std::min(graph::kAttentionRows, time), whole = time / rows * rows;
  return causal ? std::max(rows * whole, (time - whole) * time) : rows * time;
}

}  // namespace

/// First the weights' gradient, before there is memory for the input's, then that.
std::int64_t Activations::needed_by_product(const Layer& layer, bool of_input) const {
  const graph::Shape& source = layers_[static_cast<std::size_t>(layer.inputs[0])].output;
  const std::int64_t input = of_input ? graph::elements(source) * size_.samples : 0;
  return std::max(made_of_weights(layer.channels * source.back()) - input * size_.element, sums(input));
}

/// First the gradients of the projections, then those of queries, keys and values (nn/attention.cpp, nn/blocked_attention.cpp).
std::int64_t Activations::needed_by_attention(const Layer& layer) const {
  const bool split = layer.positions > 0;  // by heads, each of which sees all positions
  const std::int64_t time = split ? layer.positions : layer.output[0], features = split ? layer.channels : layer.output[1];
  const std::int64_t mixed = time * features * size_.samples * size_.element,
                     input = time * layer.output[1] * size_.samples * size_.element;
  const std::int64_t together = 4 * mixed;  // gradients of the output and of q, k and v
  const std::int64_t products = std::max(made_of_weights(3 * features * layer.output[1]) - input, sums(input / size_.element));
  const std::int64_t least = together + std::max<std::int64_t>(products, 0);
  if (layer.probability > 0) {  // masks are drawn for blocks of whole samples, stored head by head
    const std::int64_t all_heads = layer.heads * layer.output[1] / features;
    const std::int64_t group =
        std::clamp<std::int64_t>(graph::kScoresAtOnce / (all_heads * graph::kAttentionRows * time), 1, size_.samples);
    const std::int64_t scores = group * layer.heads * largest_block(time, layer.causal) * size_.element;
    const std::int64_t wide = 2 * mixed / size_.element * 4;  // sums of keys and values
    return std::max(together + (5 * mixed + wide) * group / size_.samples + 3 * scores - input, least);
  }
  return size_.kernels.attention ? std::max(together + 3 * mixed - input, least) : least;
}

/// The size of a copy of its output in whole blocks of channels. An image has few channels and is not copied.
std::int64_t Activations::blocked(const Layer& layer) const {
  constexpr std::int64_t kImageChannels = 3;
  const std::int64_t channels = layer.output[0], block = size_.kernels.block;
  if (channels <= kImageChannels) return 0;
  return graph::elements(layer.output) / channels * ((channels + block - 1) / block * block) * size_.samples * size_.element;
}

/// With blocks: first the memory for the input's gradient, then that for the weights' gradient, which is finally reordered. Without blocks:
/// groups are computed one after the other from copies, and concatenated at the end.
std::int64_t Activations::needed_by_convolution(const Layer& layer, bool of_input) const {
  const Layer& source = layers_[static_cast<std::size_t>(layer.inputs[0])];
  const std::int64_t window = layer.kernel_h * layer.kernel_w, channels = source.output[0] / layer.groups;
  const std::int64_t weights = layer.output[0] * channels * window * size_.element;
  if (size_.kernels.block > 0) {
    const std::int64_t from = blocked(layer), to = blocked(source);
    const std::int64_t made = graph::elements(source.output) * size_.samples * size_.element;
    // In 16 bits the weights' gradient is added in fp32, from channels that each thread turns over sample by sample.
    const std::int64_t threads = std::min(sums(1) / 4, size_.samples), turned = threads * (from + to) / size_.samples;
    const std::int64_t added = threads > 0 ? 4 * weights / size_.element : 0;
    return std::max({of_input ? from + weights + to - made : 0, from + to + weights + turned + added, weights + std::max(weights, added)});
  }
  if (!size_.kernels.columns) return weights;
  const std::int64_t positions = graph::elements(layer.output) / layer.output[0] * size_.samples * size_.element;
  const bool reads_in_place = window == 1 && layer.stride == 1 && layer.padding_h == 0 && layer.padding_w == 0;
  const std::int64_t columns = reads_in_place ? 0 : channels * window * positions;
  if (layer.groups == 1) return weights + columns;
  const std::int64_t input = graph::elements(source.output) * size_.samples * size_.element;
  const std::int64_t parts = (input + layer.output[0] * positions) / layer.groups;
  return 2 * weights + columns + input + parts;
}

std::int64_t Activations::needed_to_go_back(const Layer& layer, bool of_input) const {
  const std::int64_t out = graph::elements(layer.output) * size_.samples * size_.element;
  switch (layer.kind) {
    case Kind::conv: return needed_by_convolution(layer, of_input);
    case Kind::attention: return needed_by_attention(layer);
    case Kind::fc: return needed_by_product(layer, of_input);
    case Kind::lrn: return 5 * out;
    case Kind::experts: return extra(layer);
    default: return 0;
  }
}

/// By layer: whether it or a layer before it has weights. Only these layers get gradients.
std::vector<bool> Activations::which_are_trained() const {
  std::vector<bool> trained(layers_.size(), false);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    trained[i] = layers_[i].parameters > 0;
    for (const int input : layers_[i].inputs) trained[i] = trained[i] || trained[static_cast<std::size_t>(input)];
  }
  return trained;
}

// Follows nn/graph_passes.cpp: a layer's gradient is alive until those of its inputs are computed; for an output that several layers read,
// every sum is a new tensor; what a layer saved is freed when the layer is done, unless another layer saved it too.
void Activations::count_gradients() {
  const std::vector<bool> trained = which_are_trained();
  std::vector<std::size_t> last_reader(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    last_reader[i] = i;
    for (const int input : layers_[i].inputs) last_reader[static_cast<std::size_t>(input)] = i;
  }
  last_reader.back() = layers_.size();  // the loss
  for (const graph::Unit& unit : units_) {
    const std::size_t end = std::min(unit.last, layers_.size());
    AliveGradients alive(layers_.size());
    for (std::size_t i = 0; i < end; ++i)
      if (last_reader[i] >= end && trained[i]) alive.make(i, bytes_[i]);
    std::int64_t most = alive.bytes(), done = 0;
    for (std::size_t i = end; i-- > unit.first;) {
      if (alive.has(i)) {
        const Layer& layer = layers_[i];
        std::int64_t made = 0, sum = 0;
        bool of_input = false;
        for (const int input : layer.inputs) {
          const auto source = static_cast<std::size_t>(input);
          if (!trained[source]) continue;
          of_input = true;
          if (!passes_on(layer)) made += bytes_[source];
          if (alive.has(source) && layer.kind != Kind::layer_norm) sum = std::max(sum, bytes_[source]);
        }
        most = std::max(most, alive.bytes() + made + std::max(needed_to_go_back(layer, of_input), sum) - done);
        for (const int input : layer.inputs) {
          const auto source = static_cast<std::size_t>(input);
          if (!trained[source]) continue;
          const bool adds = alive.has(source);
          if (adds) alive.drop(source);
          if (passes_on(layer) && !adds) alive.share(i, source);
          else alive.make(source, bytes_[source]);
        }
        alive.drop(i);
      }
      done += done_with(i, unit.first);
    }
    gradients_.push_back(most);
  }
}

/// Bytes saved for layer `i` of a unit, and for no earlier layer of that unit.
std::int64_t Activations::done_with(std::size_t i, std::size_t first) const {
  std::set<std::size_t> own;
  for (const std::size_t storage : saved_by(i))
    if (storage >= first && (storage > 0 || copies_batch())) own.insert(storage);
  for (std::size_t before = first; before < i && !own.empty(); ++before)
    for (const std::size_t storage : saved_by(before)) own.erase(storage);
  std::int64_t sum = extra(layers_[i]);
  for (const std::size_t storage : own) sum += bytes_[storage];
  return sum;
}

}  // namespace paceline::memory
