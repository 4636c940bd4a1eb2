// Token embedding, plus a learned vector for each position if the layer has positions.
#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"
#include "paceline/nn/rows.h"

namespace paceline::nn {
namespace {

/// A batch may be shorter than the table of positions.
void deliver_positions(const at::Tensor& gradient, const at::Tensor& place, std::int64_t positions, const Pass& pass) {
  const std::int64_t used = gradient.size(1);
  if (!pass.accumulate && used < positions) place.zero_();
  deliver(place.narrow(0, 0, used), gradient.sum(0), pass);
}

class Embedding final : public Op {
 public:
  explicit Embedding(const graph::Layer& layer) : positions_(layer.positions) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor& tokens = inputs[0];  // [batch, positions]
    saved = {tokens};
    at::Tensor out = at::embedding(weights.values[0], tokens);
    return positions_ > 0 ? out.add_(weights.values[1].narrow(0, 0, tokens.size(1))) : out;
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    make_weight_gradients(pass, [this, gradient, places = weights.gradients, tokens = saved[0]](const Pass& then) {
      deliver_table_sums(places[0], gradient, tokens, then.table_begun, then);
      if (positions_ > 0) deliver_positions(gradient, places[1], positions_, then);
    });
    return {at::Tensor()};
  }

 private:
  std::int64_t positions_;
};

/// Some rows of the table. A token that is not among them gives a row of zeros, and the sum over the axis adds the right one.
class EmbeddingPart final : public Op {
 public:
  EmbeddingPart(const graph::Layer& whole, const graph::Slice::Run& tokens, const TensorAxis& axis, bool sequence)
      : first_(tokens.first), count_(tokens.count), positions_(whole.positions), axis_(axis), sequence_(sequence) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor local = inputs[0] - first_, others = local.lt(0).logical_or_(local.ge(count_));
    local.masked_fill_(others, 0);
    saved = {local, others};
    at::Tensor rows = at::embedding(weights.values[0], local).masked_fill_(others.unsqueeze(-1), 0);
    rows = sequence_ ? axis_.scatter_positions(rows) : axis_.sum(rows);
    if (positions_ == 0) return rows;
    const std::int64_t used = rows.size(1);
    return rows.add_(weights.values[1].narrow(0, sequence_ ? axis_.rank() * used : 0, used));
  }

  Tensors backward(const at::Tensor& given, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    const at::Tensor gradient = sequence_ ? axis_.gather_positions(given) : given;
    make_weight_gradients(pass, [this, gradient, places = weights.gradients, saved](const Pass& then) {
      deliver_table_sums(places[0], gradient, saved[0].masked_fill(saved[1], kNoRow), then.table_begun, then);
      if (positions_ > 0) deliver_positions(gradient, places[1], positions_, then);
    });
    return {at::Tensor()};
  }

 private:
  std::int64_t first_, count_, positions_;
  const TensorAxis& axis_;
  bool sequence_;
};

}  // namespace

MadeOp make_embedding_part(const graph::Layer& whole, const graph::Slice::Run& tokens, const TensorAxis& axis, bool sequence) {
  return std::make_unique<EmbeddingPart>(whole, tokens, axis, sequence);
}

MadeOp make_embedding(const graph::Layer& layer, bool) { return std::make_unique<Embedding>(layer); }

}  // namespace paceline::nn
