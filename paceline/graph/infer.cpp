#include "paceline/graph/infer.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::graph {
namespace {

[[noreturn]] void refuse(const Layer& layer, const std::string& why) {
  throw ConfigError(fmt::format("layer '{}' ({}): {}", layer.name, name_of(layer.kind), why));
}

void require(const Layer& layer, bool holds, const char* setting, std::int64_t value) {
  if (!holds) refuse(layer, fmt::format("{} cannot be {}", setting, value));
}

void require_rank(const Layer& layer, const Shape& input, std::size_t rank, const char* what) {
  if (input.size() != rank) refuse(layer, fmt::format("takes {}, but its input is {}", what, to_string(input)));
}

std::int64_t product(const Layer& layer, std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (std::int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result) || result > kLargest) refuse(layer, "is too large to count; use smaller sizes");
  return result;
}

std::int64_t checked_elements(const Layer& layer, const Shape& shape) {
  std::int64_t result = 1;
  for (std::int64_t size : shape) result = product(layer, {result, size});
  return result;
}

void require_arity(const Layer& layer, std::size_t inputs) {
  const bool joins = layer.kind == Kind::add || layer.kind == Kind::concat;
  if (joins ? inputs < 2 : inputs != 1) refuse(layer, fmt::format("takes {}, not {}", joins ? "two inputs or more" : "one input", inputs));
}

// One side of a convolution or a pool. With ceil_mode, a last, partial window counts if it begins inside the image or the padding before
// it, which is PyTorch's rule.
std::int64_t windows(const Layer& layer, std::int64_t size, std::int64_t kernel, std::int64_t padding) {
  const std::int64_t room = size + 2 * padding - kernel;
  if (room < 0)
    refuse(layer, fmt::format("a kernel of {} does not fit into a side of {} with padding {}; use larger images", kernel, size, padding));
  if (!layer.ceil_mode) return room / layer.stride + 1;
  const std::int64_t count = (room + layer.stride - 1) / layer.stride + 1;
  return (count - 1) * layer.stride >= size + padding ? count - 1 : count;
}

Shape slide(const Layer& layer, const Shape& input, std::int64_t channels) {
  constexpr std::int64_t kMost = 1 << 24;
  require(layer, layer.kernel_h >= 1 && layer.kernel_h <= kMost, "kernel_h", layer.kernel_h);
  require(layer, layer.kernel_w >= 1 && layer.kernel_w <= kMost, "kernel_w", layer.kernel_w);
  require(layer, layer.stride >= 1 && layer.stride <= kMost, "stride", layer.stride);
  require(layer, layer.padding_h >= 0 && layer.padding_h <= kMost, "padding_h", layer.padding_h);
  require(layer, layer.padding_w >= 0 && layer.padding_w <= kMost, "padding_w", layer.padding_w);
  return {channels, windows(layer, input[1], layer.kernel_h, layer.padding_h), windows(layer, input[2], layer.kernel_w, layer.padding_w)};
}

Shape conv_shape(const Layer& layer, const Shape& input) {
  require_rank(layer, input, 3, "an image");
  require(layer, layer.channels >= 1, "channels", layer.channels);
  require(layer, layer.groups >= 1 && input[0] % layer.groups == 0 && layer.channels % layer.groups == 0, "groups", layer.groups);
  return slide(layer, input, layer.channels);
}

Shape pool_shape(const Layer& layer, const Shape& input) {
  require_rank(layer, input, 3, "an image");
  require(layer, 2 * layer.padding_h <= layer.kernel_h, "padding_h", layer.padding_h);  // a window of padding alone has no value
  require(layer, 2 * layer.padding_w <= layer.kernel_w, "padding_w", layer.padding_w);
  return slide(layer, input, input[0]);
}

Shape global_pool_shape(const Layer& layer, const Shape& input) {
  require_rank(layer, input, 3, "an image");
  require(layer, layer.pooled_h >= 1, "pooled_h", layer.pooled_h);
  require(layer, layer.pooled_w >= 1, "pooled_w", layer.pooled_w);
  return {input[0], layer.pooled_h, layer.pooled_w};
}

Shape fc_shape(const Layer& layer, const Shape& input) {
  if (input.size() > 2) refuse(layer, fmt::format("takes a vector or a sequence, but its input is {}; flatten it first", to_string(input)));
  require(layer, layer.channels >= 1, "channels", layer.channels);
  Shape output = input;
  output.back() = layer.channels;
  return output;
}

Shape embedding_shape(const Layer& layer, const Shape& input) {
  require_rank(layer, input, 1, "a row of tokens");
  require(layer, layer.channels >= 1, "channels", layer.channels);
  require(layer, layer.vocabulary >= 1, "vocabulary", layer.vocabulary);
  require(layer, layer.positions == 0 || layer.positions >= input[0], "positions", layer.positions);
  return {input[0], layer.channels};
}

Shape attention_shape(const Layer& layer, const Shape& input) {
  require_rank(layer, input, 2, "a sequence {positions, features}");
  if (layer.heads < 1 || input[1] % layer.heads != 0)
    refuse(layer, fmt::format("{} heads do not divide {} features; choose a width that is a multiple of the number of heads", layer.heads,
                              input[1]));
  return input;
}

Shape experts_shape(const Layer& layer, const Shape& input) {
  require_rank(layer, input, 2, "a sequence {positions, features}");
  require(layer, layer.channels >= 1, "channels", layer.channels);
  require(layer, layer.experts >= 2, "experts", layer.experts);
  require(layer, layer.experts_top >= 1 && layer.experts_top <= std::min<std::int64_t>(2, layer.experts), "experts_top", layer.experts_top);
  if (!(layer.expert_capacity > 0 && layer.expert_capacity <= static_cast<double>(layer.experts)))
    refuse(layer, fmt::format("expert_capacity cannot be {}; {} is room for every position", layer.expert_capacity, layer.experts));
  return input;
}

Shape add_shape(const Layer& layer, std::span<const Shape> inputs) {
  for (const Shape& input : inputs)
    if (input != inputs[0]) refuse(layer, fmt::format("adds equal shapes, not {} and {}", to_string(inputs[0]), to_string(input)));
  return inputs[0];
}

Shape concat_shape(const Layer& layer, std::span<const Shape> inputs) {
  Shape output = inputs[0];
  output[0] = 0;
  for (const Shape& input : inputs) {
    if (!std::equal(input.begin() + 1, input.end(), inputs[0].begin() + 1, inputs[0].end()))
      refuse(layer, fmt::format("joins images of one size, not {} and {}", to_string(inputs[0]), to_string(input)));
    output[0] += input[0];
  }
  return output;
}

Shape shape_of(const Layer& layer, std::span<const Shape> inputs) {
  const Shape& input = inputs[0];
  switch (layer.kind) {
    case Kind::conv: return conv_shape(layer, input);
    case Kind::fc: return fc_shape(layer, input);
    case Kind::max_pool:
    case Kind::avg_pool: return pool_shape(layer, input);
    case Kind::global_pool: return global_pool_shape(layer, input);
    case Kind::add: return add_shape(layer, inputs);
    case Kind::concat: return concat_shape(layer, inputs);
    case Kind::flatten: return {checked_elements(layer, input)};
    case Kind::embedding: return embedding_shape(layer, input);
    case Kind::attention: return attention_shape(layer, input);
    case Kind::experts: return experts_shape(layer, input);
    case Kind::softmax_loss: return {1};
    case Kind::batch_norm:
      if (input.size() == 2) refuse(layer, fmt::format("takes an image or a vector, but its input is {}", to_string(input)));
      return input;
    case Kind::dropout:
      if (!(layer.probability >= 0 && layer.probability < 1)) refuse(layer, fmt::format("probability cannot be {}", layer.probability));
      return input;
    case Kind::lrn: require_rank(layer, input, 3, "an image"); return input;
    case Kind::layer_norm:
    case Kind::relu:
    case Kind::relu6:
    case Kind::gelu:
    case Kind::tanh:
    case Kind::sigmoid: return input;
    case Kind::input: break;
  }
  refuse(layer, "a graph has one input, its first layer");
}

// T positions of d features: the projections cost 4·T·d², the scores and their product with the values T²·d each. A causal mask does not
// reduce the count: skipping the masked half is up to the implementation. An expert computes all its slots, including empty ones.
std::int64_t macs_of(const Layer& layer, const Shape& input) {
  switch (layer.kind) {
    case Kind::conv:
      return product(layer, {checked_elements(layer, layer.output), input[0] / layer.groups, layer.kernel_h, layer.kernel_w});
    case Kind::fc: return product(layer, {checked_elements(layer, layer.output), input.back()});
    case Kind::attention: return product(layer, {4, input[0], input[1], input[1]}) + product(layer, {2, input[0], input[0], input[1]});
    case Kind::experts:
      return product(layer, {input[0], input[1], layer.experts}) +
             product(layer, {2, layer.experts, expert_slots(layer), input[1], layer.channels});
    default: return 0;
  }
}

}  // namespace

std::vector<Parameter> tensors_of(const Layer& layer, const Shape& input) {
  std::vector<Parameter> tensors;
  const auto weight = [&](const char* suffix, Shape shape) { tensors.push_back({.name = layer.name + suffix, .shape = std::move(shape)}); };
  const auto undecayed = [&](const char* suffix, std::int64_t size) {
    tensors.push_back({.name = layer.name + suffix, .shape = {size}, .decay = false});
  };
  const auto statistic = [&](const char* suffix, std::int64_t size) {
    tensors.push_back({.name = layer.name + suffix, .shape = {size}, .trainable = false, .decay = false});
  };
  switch (layer.kind) {
    case Kind::conv:
      weight(".weight", {layer.channels, input[0] / layer.groups, layer.kernel_h, layer.kernel_w});
      if (layer.bias) undecayed(".bias", layer.channels);
      break;
    case Kind::fc:
      if (layer.table < 0) weight(".weight", {layer.channels, input.back()});
      if (layer.bias) undecayed(".bias", layer.channels);
      break;
    case Kind::batch_norm:
      if (layer.scale) undecayed(".weight", input[0]);
      undecayed(".bias", input[0]);
      statistic(".running_mean", input[0]);
      statistic(".running_var", input[0]);
      break;
    case Kind::layer_norm:
      undecayed(".weight", input.back());
      undecayed(".bias", input.back());
      break;
    case Kind::embedding:
      weight(".wte.weight", {layer.vocabulary, layer.channels});
      if (layer.positions > 0) weight(".wpe.weight", {layer.positions, layer.channels});
      break;
    case Kind::attention:
      weight(".c_attn.weight", {3 * input[1], input[1]});
      if (layer.bias) undecayed(".c_attn.bias", 3 * input[1]);
      weight(".c_proj.weight", {input[1], input[1]});
      if (layer.bias) undecayed(".c_proj.bias", input[1]);
      break;
    case Kind::experts:
      weight(".gate.weight", {layer.experts, input[1]});
      weight(".c_fc.weight", {layer.experts, layer.channels, input[1]});
      undecayed(".c_fc.bias", layer.channels);
      weight(".c_proj.weight", {layer.experts, input[1], layer.channels});
      undecayed(".c_proj.bias", input[1]);
      for (std::size_t i = 1; i < tensors.size(); ++i) tensors[i].spread = true;
      for (const std::size_t bias : {2, 4}) tensors[bias].shape.insert(tensors[bias].shape.begin(), layer.experts);
      break;
    default: break;
  }
  return tensors;
}

void infer(Layer& layer, std::span<const Shape> inputs) {
  require_arity(layer, inputs.size());
  layer.output = shape_of(layer, inputs);
  layer.macs = macs_of(layer, inputs[0]);
  layer.activation_bytes = product(layer, {checked_elements(layer, layer.output), 4});
  layer.parameters = 0;
  for (const Parameter& tensor : tensors_of(layer, inputs[0]))
    if (tensor.trainable) layer.parameters += checked_elements(layer, tensor.shape);
  layer.gradient_bytes = product(layer, {layer.parameters, 4});
}

}  // namespace paceline::graph
