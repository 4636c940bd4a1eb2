// Token embedding, plus a learned vector a position where the layer has positions.
#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

class Embedding final : public Op {
 public:
  explicit Embedding(const graph::Layer& layer) : vocabulary_(layer.vocabulary), positions_(layer.positions) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor& tokens = inputs[0];  // [batch, positions]
    saved = {tokens};
    at::Tensor out = at::embedding(weights.values[0], tokens);
    return positions_ > 0 ? out.add_(weights.values[1].narrow(0, 0, tokens.size(1))) : out;
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    make_weight_gradients(pass, [this, gradient, places = weights.gradients, tokens = saved[0]](const Pass& then) {
      deliver(places[0], at::embedding_dense_backward(gradient, tokens, vocabulary_, -1, false), then);
      if (positions_ == 0) return;
      const std::int64_t used = tokens.size(1);
      if (!then.accumulate && used < positions_) places[1].zero_();
      deliver(places[1].narrow(0, 0, used), gradient.sum(0), then);
    });
    return {at::Tensor()};
  }

 private:
  std::int64_t vocabulary_, positions_;
};

}  // namespace

MadeOp make_embedding(const graph::Layer& layer, bool) { return std::make_unique<Embedding>(layer); }

}  // namespace paceline::nn
