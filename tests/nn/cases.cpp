#include "cases.h"

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "paceline/base/error.h"

namespace paceline::nn {
namespace {

using graph::Kind;
using graph::Layer;
using graph::Shape;
namespace F = torch::nn::functional;
using Pair = torch::ExpandingArray<2>;

constexpr std::int64_t kBatch = 3;

void conv3x3(Layer& l) { l.channels = 4, l.kernel_h = l.kernel_w = 3; }
void pool3x2(Layer& l) { l.kernel_h = 3, l.kernel_w = 2, l.stride = 2, l.padding_h = 1; }
void embedding(Layer& l) { l.vocabulary = 5, l.channels = 3; }
void attention(Layer& l) { l.heads = 2, l.probability = 0; }
void experts(Layer& l) { l.experts = 4, l.channels = 5; }

const std::vector<Case> kCases = {
    {"conv", Kind::conv, {2, 5, 4}, conv3x3},
    {"conv_without_bias", Kind::conv, {2, 5, 4}, [](Layer& l) { conv3x3(l), l.bias = false; }},
    {"conv_strided", Kind::conv, {2, 5, 6}, [](Layer& l) { conv3x3(l), l.stride = 2, l.padding_h = l.padding_w = 1; }},
    {"conv_asymmetric", Kind::conv, {2, 5, 4}, [](Layer& l) { l.channels = 3, l.kernel_w = 3, l.padding_h = 2, l.padding_w = 1; }},
    {"conv_grouped", Kind::conv, {4, 4, 4}, [](Layer& l) { conv3x3(l), l.groups = 2, l.padding_w = 1; }},
    {"conv_depthwise", Kind::conv, {4, 4, 4}, [](Layer& l) { conv3x3(l), l.groups = 4, l.bias = false; }},
    {"fc", Kind::fc, {5}, [](Layer& l) { l.channels = 4; }},
    {"fc_without_bias", Kind::fc, {5}, [](Layer& l) { l.channels = 4, l.bias = false; }},
    {"fc_of_sequence", Kind::fc, {3, 5}, [](Layer& l) { l.channels = 4; }},
    {"batch_norm", Kind::batch_norm, {2, 3, 2}},
    {"batch_norm_without_scale", Kind::batch_norm, {2, 3, 2}, [](Layer& l) { l.scale = false, l.epsilon = 1e-3; }},
    {"batch_norm_of_vector", Kind::batch_norm, {4}, [](Layer& l) { l.momentum = 0.3; }},
    {.name = "batch_norm_evaluated", .kind = Kind::batch_norm, .input = {2, 3, 2}, .training = false},
    {"layer_norm", Kind::layer_norm, {3, 4}},
    {"layer_norm_of_vector", Kind::layer_norm, {6}, [](Layer& l) { l.epsilon = 1e-2; }},
    {"relu", Kind::relu, {2, 3, 4}},
    {.name = "relu6", .kind = Kind::relu6, .input = {2, 3, 4}, .spread = 6},
    {.name = "gelu", .kind = Kind::gelu, .input = {3, 4}, .spread = 2},
    {"tanh", Kind::tanh, {5}},
    {"sigmoid", Kind::sigmoid, {5}},
    {"max_pool", Kind::max_pool, {2, 5, 6}, pool3x2},
    {"max_pool_overlapping", Kind::max_pool, {2, 5, 5}, [](Layer& l) { l.kernel_h = l.kernel_w = 3; }},
    {"max_pool_ceil_mode", Kind::max_pool, {2, 6, 5}, [](Layer& l) { pool3x2(l), l.padding_h = 0, l.ceil_mode = true; }},
    {"avg_pool_counts_padding", Kind::avg_pool, {2, 5, 6}, pool3x2},
    {"avg_pool_without_padding", Kind::avg_pool, {2, 5, 6}, [](Layer& l) { pool3x2(l), l.count_padding = false; }},
    {"avg_pool_ceil_mode", Kind::avg_pool, {2, 6, 5}, [](Layer& l) { pool3x2(l), l.ceil_mode = true; }},
    {"global_pool", Kind::global_pool, {3, 4, 5}},
    {"global_pool_to_cells", Kind::global_pool, {2, 5, 7}, [](Layer& l) { l.pooled_h = 2, l.pooled_w = 3; }},
    {"lrn", Kind::lrn, {7, 2, 3}, [](Layer& l) { l.lrn_alpha = 0.5; }},
    {"lrn_even", Kind::lrn, {6, 2, 3}, [](Layer& l) { l.lrn_size = 4, l.lrn_alpha = 2, l.lrn_beta = 0.6, l.lrn_k = 1; }},
    {"lrn_wider_than_its_input", Kind::lrn, {2, 2, 3}, [](Layer& l) { l.lrn_alpha = 1; }},
    {"dropout", Kind::dropout, {4, 5}, [](Layer& l) { l.probability = 0.4; }},
    {"dropout_of_nothing", Kind::dropout, {4, 5}, [](Layer& l) { l.probability = 0; }},
    {.name = "dropout_evaluated", .kind = Kind::dropout, .input = {4, 5}, .training = false},
    {.name = "add", .kind = Kind::add, .input = {2, 3, 2}, .joined = 2},
    {.name = "add_three", .kind = Kind::add, .input = {2, 3, 2}, .joined = 3},
    {.name = "concat", .kind = Kind::concat, .input = {2, 3, 2}, .joined = 2},
    {.name = "concat_three", .kind = Kind::concat, .input = {4}, .joined = 3},
    {"flatten", Kind::flatten, {2, 3, 2}},
    {"embedding", Kind::embedding, {4}, embedding},
    {"embedding_with_positions", Kind::embedding, {4}, [](Layer& l) { embedding(l), l.positions = 4; }},
    {"embedding_with_more_positions", Kind::embedding, {4}, [](Layer& l) { embedding(l), l.positions = 7; }},
    {"attention", Kind::attention, {3, 4}, attention},
    {"attention_causal", Kind::attention, {4, 6}, [](Layer& l) { attention(l), l.causal = true; }},
    {"attention_without_bias", Kind::attention, {3, 4}, [](Layer& l) { attention(l), l.causal = true, l.bias = false; }},
    {"attention_dropout", Kind::attention, {3, 4}, [](Layer& l) { attention(l), l.causal = true, l.probability = 0.3; }},
    {"experts", Kind::experts, {6, 4}, experts},
    {"experts_top_2", Kind::experts, {6, 4}, [](Layer& l) { experts(l), l.experts_top = 2, l.expert_capacity = 1; }},
    {"experts_with_room_for_all", Kind::experts, {6, 4}, [](Layer& l) { experts(l), l.experts_top = 2, l.expert_capacity = 4; }},
    {"softmax_loss", Kind::softmax_loss, {6}},
    {.name = "softmax_loss_smoothed", .kind = Kind::softmax_loss, .input = {6}, .smoothing = 0.1},
    {.name = "softmax_loss_of_sequence", .kind = Kind::softmax_loss, .input = {4, 5}, .smoothing = 0.2},
};

at::Tensor reference_conv(const Layer& l, const at::Tensor& x, const Weights& w) {
  torch::nn::Conv2d module(torch::nn::Conv2dOptions(x.size(1), l.channels, Pair({l.kernel_h, l.kernel_w}))
                               .stride(l.stride)
                               .padding(Pair({l.padding_h, l.padding_w}))
                               .groups(l.groups)
                               .bias(l.bias));
  module->weight = w.values[0];
  if (l.bias) module->bias = w.values[1];
  return module(x);
}

at::Tensor reference_fc(const Layer& l, const at::Tensor& x, const Weights& w) {
  torch::nn::Linear module(torch::nn::LinearOptions(x.size(-1), l.channels).bias(l.bias));
  module->weight = w.values[0];
  if (l.bias) module->bias = w.values[1];
  return module(x);
}

template <class Module>
at::Tensor reference_batch_norm(const Layer& l, const at::Tensor& x, const Weights& w, bool training) {
  Module module(torch::nn::BatchNormOptions(x.size(1)).eps(l.epsilon).momentum(l.momentum));
  module->weight = l.scale ? w.values[0] : at::ones_like(w.values[0]);
  module->bias = w.values.back();
  module->running_mean = w.statistics[0];
  module->running_var = w.statistics[1];
  module->train(training);
  return module(x);
}

at::Tensor reference_layer_norm(const Layer& l, const at::Tensor& x, const Weights& w) {
  torch::nn::LayerNorm module(torch::nn::LayerNormOptions({x.size(-1)}).eps(l.epsilon));
  module->weight = w.values[0];
  module->bias = w.values[1];
  return module(x);
}

at::Tensor reference_embedding(const Layer& l, const at::Tensor& tokens, const Weights& w) {
  torch::nn::Embedding words(l.vocabulary, l.channels);
  words->weight = w.values[0];
  if (l.positions == 0) return words(tokens);
  torch::nn::Embedding places(l.positions, l.channels);
  places->weight = w.values[1];
  return words(tokens) + places(at::arange(tokens.size(1)));
}

at::Tensor reference_attention(const Layer& l, const at::Tensor& x, const Weights& w, bool training) {
  torch::nn::MultiheadAttention module(torch::nn::MultiheadAttentionOptions(x.size(2), l.heads).bias(l.bias).dropout(l.probability));
  const std::size_t out = l.bias ? 2 : 1;
  module->in_proj_weight = w.values[0];
  module->out_proj->weight = w.values[out];
  if (l.bias) {
    module->in_proj_bias = w.values[1];
    module->out_proj->bias = w.values[out + 1];
  }
  module->train(training);
  const at::Tensor future = at::full({x.size(1), x.size(1)}, -INFINITY, x.options()).triu(1);
  const at::Tensor rows = x.transpose(0, 1);  // the module has the positions first
  reseed();                                   // its constructor has drawn
  return std::get<0>(module(rows, rows, rows, /*key_padding_mask=*/at::Tensor(), /*need_weights=*/false, l.causal ? future : at::Tensor()))
      .transpose(0, 1);
}

/// Position by position, in loops.
at::Tensor reference_experts(const Layer& l, const at::Tensor& x, const Weights& w) {
  const double even = static_cast<double>(l.experts_top * x.size(1)) / static_cast<double>(l.experts);
  const auto room = static_cast<std::int64_t>(std::ceil(l.expert_capacity * even));
  std::vector<at::Tensor> sequences;
  for (std::int64_t s = 0; s < x.size(0); ++s) {
    std::vector<std::int64_t> taken(static_cast<std::size_t>(l.experts), 0);
    std::vector<at::Tensor> rows;
    for (std::int64_t t = 0; t < x.size(1); ++t) {
      const at::Tensor row = x[s][t], p = torch::softmax(torch::mv(w.values[0], row), 0), order = p.argsort(0, /*descending=*/true);
      at::Tensor chosen = p[order[0].item<std::int64_t>()];
      if (l.experts_top == 2) chosen = chosen + p[order[1].item<std::int64_t>()];
      at::Tensor sum = torch::zeros_like(row);
      for (std::int64_t choice = 0; choice < l.experts_top; ++choice) {
        const auto e = order[choice].item<std::int64_t>();
        if (++taken[static_cast<std::size_t>(e)] > room) continue;
        const at::Tensor hidden = torch::gelu(torch::mv(w.values[1][e], row) + w.values[2][e], "tanh");
        const at::Tensor gate = l.experts_top == 1 ? p[e] : p[e] / chosen;
        sum = sum + gate * (torch::mv(w.values[3][e], hidden) + w.values[4][e]);
      }
      rows.push_back(sum);
    }
    sequences.push_back(torch::stack(rows));
  }
  return torch::stack(sequences);
}

at::Tensor reference_pool(const Layer& l, const at::Tensor& x) {
  const Pair kernel({l.kernel_h, l.kernel_w}), padding({l.padding_h, l.padding_w});
  if (l.kind == Kind::max_pool)
    return torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(kernel).stride(l.stride).padding(padding).ceil_mode(l.ceil_mode))(x);
  return torch::nn::AvgPool2d(
      torch::nn::AvgPool2dOptions(kernel).stride(l.stride).padding(padding).ceil_mode(l.ceil_mode).count_include_pad(l.count_padding))(x);
}

at::Tensor reference_dropout(const Layer& l, const at::Tensor& x, bool training) {
  torch::nn::Dropout module(l.probability);
  module->train(training);
  return module(x);
}

at::Tensor reference_add(const Tensors& inputs) {
  at::Tensor sum = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) sum = sum + inputs[i];
  return sum;
}

}  // namespace

const std::vector<Case>& cases() { return kCases; }

graph::Graph graph_of(const Case& row, bool behind_norm) {
  graph::Graph graph("tiny", row.input, 1);
  const auto append = [&](const char* name, Kind kind, std::vector<int> inputs, void (*set)(Layer&)) {
    Layer layer;
    layer.name = name;
    layer.kind = kind;
    layer.inputs = std::move(inputs);
    set(layer);
    return graph.append(std::move(layer));
  };
  const auto plain = [](Layer&) {};
  std::vector<int> inputs = {behind_norm ? append("before", Kind::layer_norm, {0}, plain) : 0};
  if (row.joined > 1) inputs.push_back(append("second", Kind::tanh, {0}, plain));
  if (row.joined > 2) inputs.push_back(append("third", Kind::sigmoid, {0}, plain));
  append("layer", row.kind, std::move(inputs), row.set);
  return graph;
}

at::Tensor sample_of(const Case& row) {
  torch::manual_seed(11);
  Shape shape = row.input;
  shape.insert(shape.begin(), kBatch);
  if (row.kind == Kind::embedding) return at::randint(graph_of(row).layers().back().vocabulary, shape, at::kLong);
  return row.spread * at::randn(shape, at::kDouble);
}

at::Tensor targets_of(const Case& row) {
  torch::manual_seed(12);
  Shape shape = row.input;  // all but the classes
  shape.pop_back();
  shape.insert(shape.begin(), kBatch);
  return at::randint(row.input.back(), shape, at::kLong);
}

void reseed() { torch::manual_seed(14); }

at::Tensor reference(const Case& row, const at::Tensor& x, const Weights& w) {
  const graph::Graph graph = graph_of(row);
  const Layer& l = graph.layers().back();
  Tensors inputs = {x};
  if (row.joined > 1) inputs.push_back(x.tanh());
  if (row.joined > 2) inputs.push_back(x.sigmoid());
  switch (row.kind) {
    case Kind::conv: return reference_conv(l, x, w);
    case Kind::fc: return reference_fc(l, x, w);
    case Kind::batch_norm:
      return x.dim() == 4 ? reference_batch_norm<torch::nn::BatchNorm2d>(l, x, w, row.training)
                          : reference_batch_norm<torch::nn::BatchNorm1d>(l, x, w, row.training);
    case Kind::layer_norm: return reference_layer_norm(l, x, w);
    case Kind::relu: return torch::nn::ReLU()(x);
    case Kind::relu6: return torch::nn::ReLU6()(x);
    case Kind::gelu: return torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh"))(x);
    case Kind::tanh: return torch::nn::Tanh()(x);
    case Kind::sigmoid: return torch::nn::Sigmoid()(x);
    case Kind::max_pool:
    case Kind::avg_pool: return reference_pool(l, x);
    case Kind::global_pool: return torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions({l.pooled_h, l.pooled_w}))(x);
    case Kind::lrn:
      return F::local_response_norm(x, F::LocalResponseNormFuncOptions(l.lrn_size).alpha(l.lrn_alpha).beta(l.lrn_beta).k(l.lrn_k));
    case Kind::dropout: return reference_dropout(l, x, row.training);
    case Kind::add: return reference_add(inputs);
    case Kind::concat: return torch::cat(inputs, 1);
    case Kind::flatten: return torch::nn::Flatten()(x);
    case Kind::embedding: return reference_embedding(l, x, w);
    case Kind::attention: return reference_attention(l, x, w, row.training);
    case Kind::experts: return reference_experts(l, x, w);
    case Kind::softmax_loss:
      return F::cross_entropy(x.reshape({-1, x.size(-1)}), targets_of(row).flatten(),
                              F::CrossEntropyFuncOptions().label_smoothing(row.smoothing));
    case Kind::input: break;
  }
  throw InternalError("no reference for this kind of layer");
}

}  // namespace paceline::nn
