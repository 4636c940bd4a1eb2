#include "paceline/graph/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"

namespace paceline::graph {

Builder::Builder(std::string network, Shape input, std::int64_t classes) : graph_(std::move(network), std::move(input), classes) {}

Builder::Builder(const ModelConfig& config, const Shape& input, std::int64_t classes)
    : Builder(config.network, config.input.empty() ? input : config.input, config.classes == 0 ? classes : config.classes) {
  multiplier_ = config.multiplier;
}

std::int64_t Builder::scaled(std::int64_t channels) const {
  if (multiplier_ == 1) return channels;
  return std::max<std::int64_t>(8, 8 * std::llround(static_cast<double>(channels) * multiplier_ / 8));
}

void Builder::require_image(std::int64_t least_side) {
  const Shape& shape = input();
  if (shape.size() == 3 && shape[1] >= least_side && shape[2] >= least_side) return;
  throw ConfigError(fmt::format(
      "network '{}' takes images [channels, height, width] of at least {}x{} pixels, not {}; set model.input or choose another network",
      graph_.network(), least_side, least_side, to_string(shape)));
}

void Builder::require_tokens() {
  if (input().size() == 1) return;
  throw ConfigError(fmt::format("network '{}' takes rows of tokens [positions], not {}; use data.name=text, or choose another network",
                                graph_.network(), to_string(input())));
}

bool Builder::small_image() const { return std::min(input()[1], input()[2]) <= 64; }

Builder& Builder::from(int layer) { return top_ = layer, *this; }
Builder& Builder::draw(Init init, double deviation) { return init_ = init, deviation_ = deviation, *this; }

Builder& Builder::conv(std::string name, std::int64_t channels, const Conv& options) {
  Layer layer = weighted(channels, options.bias);
  layer.kernel_h = options.kernel.h, layer.kernel_w = options.kernel.w;
  layer.padding_h = options.padding.h, layer.padding_w = options.padding.w;
  layer.stride = options.stride;
  layer.groups = options.groups;
  return append(Kind::conv, std::move(name), std::move(layer));
}

Builder& Builder::fc(std::string name, std::int64_t features, bool bias) {
  return append(Kind::fc, std::move(name), weighted(features, bias));
}

Builder& Builder::tied(std::string name, int embedding) {
  Layer layer = weighted(classes(), /*bias=*/false);
  layer.table = embedding;
  return append(Kind::fc, std::move(name), std::move(layer));
}

Builder& Builder::bn(std::string name, const Norm& options) {
  Layer layer;
  layer.epsilon = options.epsilon;
  layer.scale = options.scale;
  layer.init = options.zero ? Init::zero : Init::standard;
  return append(Kind::batch_norm, std::move(name), std::move(layer));
}

Builder& Builder::layer_norm(std::string name) { return append(Kind::layer_norm, std::move(name)); }

Builder& Builder::embedding(std::string name, std::int64_t vocabulary, std::int64_t positions, std::int64_t features) {
  Layer layer = weighted(features, false);
  layer.vocabulary = vocabulary;
  layer.positions = positions;
  return append(Kind::embedding, std::move(name), std::move(layer));
}

Builder& Builder::attention(std::string name, const Attention& options) {
  Layer layer = weighted(shape().back(), true);
  layer.heads = options.heads;
  layer.causal = options.causal;
  layer.probability = options.dropout;
  layer.projection_std = options.projection_std;
  return append(Kind::attention, std::move(name), std::move(layer));
}

Builder& Builder::experts(std::string name, const Experts& options) {
  Layer layer = weighted(options.hidden, true);
  layer.experts = options.count, layer.experts_top = options.top;
  layer.expert_capacity = options.capacity, layer.balance = options.balance;
  layer.projection_std = options.projection_std;
  return append(Kind::experts, std::move(name), std::move(layer));
}

Builder& Builder::relu(std::string name) { return append(Kind::relu, std::move(name)); }
Builder& Builder::relu6(std::string name) { return append(Kind::relu6, std::move(name)); }
Builder& Builder::gelu(std::string name) { return append(Kind::gelu, std::move(name)); }
Builder& Builder::tanh(std::string name) { return append(Kind::tanh, std::move(name)); }
Builder& Builder::sigmoid(std::string name) { return append(Kind::sigmoid, std::move(name)); }
Builder& Builder::lrn(std::string name) { return append(Kind::lrn, std::move(name)); }
Builder& Builder::flatten(std::string name) { return append(Kind::flatten, std::move(name)); }

Builder& Builder::dropout(double probability, std::string name) {
  Layer layer;
  layer.probability = probability;
  return append(Kind::dropout, std::move(name), std::move(layer));
}

Builder& Builder::max_pool(const Pool& options, std::string name) { return append_pool(Kind::max_pool, options, std::move(name)); }
Builder& Builder::avg_pool(const Pool& options, std::string name) { return append_pool(Kind::avg_pool, options, std::move(name)); }

Builder& Builder::append_pool(Kind kind, const Pool& options, std::string name) {
  Layer layer;
  layer.kernel_h = options.kernel.h, layer.kernel_w = options.kernel.w;
  layer.padding_h = options.padding.h, layer.padding_w = options.padding.w;
  layer.stride = options.stride;
  layer.ceil_mode = options.ceil_mode;
  layer.count_padding = options.count_padding;
  layer.counted_as_pool = options.counted;
  return append(kind, std::move(name), std::move(layer));
}

Builder& Builder::global_pool(const GlobalPool& options, std::string name) {
  Layer layer;
  layer.pooled_h = options.pooled.h, layer.pooled_w = options.pooled.w;
  layer.counted_as_pool = options.counted;
  return append(Kind::global_pool, std::move(name), std::move(layer));
}

Builder& Builder::add(int other, std::string name) {
  Layer layer;
  layer.inputs = {top_, other};
  return append(Kind::add, std::move(name), std::move(layer));
}

Builder& Builder::concat(const std::vector<int>& layers, std::string name) {
  Layer layer;
  layer.inputs = layers;
  return append(Kind::concat, std::move(name), std::move(layer));
}

Graph Builder::finish() {
  if (shape().back() != classes())
    throw ConfigError(fmt::format("network '{}' ends in '{}' of shape {}, which is not one logit for each of {} classes", graph_.network(),
                                  graph_.layers()[top_].name, to_string(shape()), classes()));
  append(Kind::softmax_loss, "loss");
  return std::move(graph_);
}

Layer Builder::weighted(std::int64_t channels, bool bias) const {
  Layer layer;
  layer.channels = channels;
  layer.bias = bias;
  layer.init = init_;
  layer.init_std = deviation_;
  return layer;
}

Builder& Builder::append(Kind kind, std::string name, Layer layer) {
  layer.kind = kind;
  layer.name = name.empty() ? fmt::format("{}_{}", name_of(kind), ++unnamed_[kind]) : std::move(name);
  if (layer.inputs.empty()) layer.inputs = {top_};
  top_ = graph_.append(std::move(layer));
  return *this;
}

}  // namespace paceline::graph
