#include "paceline/nn/decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "paceline/base/error.h"
#include "paceline/nn/ops/linear.h"

namespace paceline::nn {

using graph::Kind;

Decoder::Decoder(GraphModule& module) : graph_(module.graph()), steps_(graph_.layers().size()) {
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    const graph::Layer& layer = graph_.layers()[i];
    if (layer.kind == Kind::embedding) positions_ = layer.positions;
    else if (layer.kind != Kind::attention && layer.kind != Kind::softmax_loss) steps_[i].op = op_kind(layer.kind).make(layer, false);
  }
  if (positions_ == 0)
    throw ConfigError(fmt::format("network '{}' does not read text, so it cannot continue one; use model.network=gpt", graph_.network()));
  tensor::Arena& arena = module.arena();
  const bool narrow = arena.parameters().scalar_type() != c10::kFloat && arena.parameters().scalar_type() != c10::kDouble;
  for (const graph::Parameter& parameter : graph_.parameters()) {
    const auto entry = std::ranges::find(arena.entries(), parameter.name, &tensor::Entry::name);
    ensure(entry != arena.entries().end(), "a decoder's module holds the whole network");
    const at::Tensor values = arena.parameter(static_cast<std::size_t>(entry - arena.entries().begin()));
    steps_[static_cast<std::size_t>(parameter.layer)].weights.values.push_back(narrow ? values.to(at::kFloat) : values);
  }
  if (const int head = graph_.tied(); head >= 0) {
    const int table = graph_.layers()[static_cast<std::size_t>(head)].table;
    steps_[static_cast<std::size_t>(head)].weights.values = {steps_[static_cast<std::size_t>(table)].weights.values[0]};
  }
}

at::Tensor Decoder::embed(const graph::Layer& layer, const Step& step, const at::Tensor& tokens) const {
  at::Tensor rows = at::embedding(step.weights.values[0], tokens);
  return layer.positions > 0 ? rows.add_(step.weights.values[1].narrow(0, length_, tokens.size(1))) : rows;
}

/// As ops/attention.cpp, for the new positions only; they see earlier positions in the cache.
at::Tensor Decoder::attend(const graph::Layer& layer, Step& step, const at::Tensor& x) const {
  const std::int64_t batch = x.size(0), count = x.size(1), width = x.size(2), heads = layer.heads, head = width / heads;
  const Tensors& weights = step.weights.values;
  const std::size_t out = layer.bias ? 2 : 1;
  const at::Tensor qkv =
      linear_forward(x.reshape({-1, width}), weights[0], layer.bias ? weights[1] : at::Tensor()).view({batch, count, 3, heads, head});
  const auto part = [&](std::int64_t i) { return qkv.select(2, i).transpose(1, 2); };  // [batch, heads, new, head]
  for (const auto& [cache, fresh] : {std::pair{&step.keys, part(1)}, std::pair{&step.values, part(2)}}) {
    if (!cache->defined() || cache->size(0) != batch) *cache = at::empty({batch, heads, positions_, head}, x.options());
    cache->narrow(2, length_, count).copy_(fresh);
  }
  const std::int64_t all = length_ + count;
  at::Tensor scores = at::matmul(part(0), step.keys.narrow(2, 0, all).transpose(2, 3)).mul_(1 / std::sqrt(static_cast<double>(head)));
  if (layer.causal && count > 1) {  // the last position sees all
    const at::Tensor future = at::ones({count, all}, scores.options().dtype(at::kBool)).triu_(length_ + 1);
    scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor mixed =
      at::matmul(at::softmax(scores, -1), step.values.narrow(2, 0, all)).transpose(1, 2).reshape({batch * count, width});
  return linear_forward(mixed, weights[out], layer.bias ? weights[out + 1] : at::Tensor()).view({batch, count, width});
}

at::Tensor Decoder::read(const at::Tensor& tokens) {
  at::NoGradGuard no_grad;
  const std::int64_t count = tokens.size(1);
  ensure(count > 0 && count <= room(), "a decoder has room for the positions that it reads");
  Pass pass;
  pass.training = false;
  const auto logits = static_cast<std::size_t>(graph_.logits());
  std::vector<at::Tensor> outputs(logits + 1);
  outputs[0] = tokens;
  Tensors unused;
  for (std::size_t i = 1; i <= logits; ++i) {
    const graph::Layer& layer = graph_.layers()[i];
    Tensors inputs;
    for (const int source : layer.inputs) inputs.push_back(outputs[static_cast<std::size_t>(source)]);
    if (i == logits)
      inputs[0] = inputs[0].narrow(1, count - 1, 1);  // a vocabulary is large, and the other positions' logits are not needed
    if (layer.kind == Kind::embedding) outputs[i] = embed(layer, steps_[i], inputs[0]);
    else if (layer.kind == Kind::attention) outputs[i] = attend(layer, steps_[i], inputs[0]);
    else outputs[i] = steps_[i].op->forward(inputs, steps_[i].weights, pass, unused);
  }
  length_ += count;
  return outputs[logits].select(1, 0);
}

}  // namespace paceline::nn
