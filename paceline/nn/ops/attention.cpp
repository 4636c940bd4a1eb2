// Multi-head self-attention with its projections: [batch, T, d] → [batch, T, d].
//
//   q, k, v = x Wqkvᵀ + b;  o = softmax(q kᵀ/√d_head + mask) v, with dropout in training (nn/attention.h);  y = o Woᵀ + b
#include "paceline/nn/attention.h"

#include <ATen/ATen.h>

#include "paceline/nn/ops/linear.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

class Attention final : public Op {
 public:
  /// `heads`: those of this rank. `out_bias`: whether the output's bias is this layer's to add.
  Attention(const graph::Layer& layer, const graph::Slice::Run& heads, bool out_bias)
      : heads_(heads.count),
        head_(layer.output.back() / layer.heads),
        bias_(layer.bias),
        out_bias_(layer.bias && out_bias),
        form_{.causal = layer.causal, .keep = 1 - layer.probability, .first = heads.first, .all_heads = layer.heads} {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    const at::Tensor& x = inputs[0];
    const std::int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const at::Tensor rows = x.reshape({-1, width});
    const at::Tensor qkv =
        linear_forward(rows, weights.values[0], bias_ ? weights.values[1] : at::Tensor()).view({batch, time, 3, heads_, head_});
    Tensors kept;
    const at::Tensor mixed = attend(qkv, form_, pass, kept);
    saved = {rows, qkv, mixed};
    saved.insert(saved.end(), kept.begin(), kept.end());
    return linear_forward(mixed, weights.values[out_], out_bias_ ? weights.values[out_ + 1] : at::Tensor()).view({batch, time, width});
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    const at::Tensor &rows = saved[0], &qkv = saved[1], &mixed = saved[2];
    const std::int64_t batch = gradient.size(0), time = gradient.size(1), width = gradient.size(2);
    const at::Tensor in_bias = bias_ ? weights.gradients[1] : at::Tensor(),
                     out_bias_place = out_bias_ ? weights.gradients[out_ + 1] : at::Tensor();
    const at::Tensor mixed_gradient =
        linear_backward(gradient.reshape({-1, width}), mixed, weights.values[out_], weights.gradients[out_], out_bias_place, pass, true);
    const at::Tensor qkv_gradient =
        attend_back(mixed_gradient, qkv, mixed, form_, pass, {saved.begin() + 3, saved.end()}).view({batch * time, 3 * heads_ * head_});
    const at::Tensor input = linear_backward(qkv_gradient, rows, weights.values[0], weights.gradients[0], in_bias, pass, wants_input);
    return {wants_input ? input.view({batch, time, width}) : input};
  }

 private:
  std::int64_t heads_, head_;  // of this rank; features of each
  bool bias_, out_bias_;
  AttentionForm form_;
  std::size_t out_ = bias_ ? 2 : 1;  // index of the output projection among the weights
};

}  // namespace

MadeOp make_attention(const graph::Layer& layer, bool) {
  return std::make_unique<Attention>(layer, graph::Slice::Run{.first = 0, .count = layer.heads}, /*out_bias=*/true);
}
MadeOp make_attention_part(const graph::Layer& whole, const graph::Slice::Run& heads, bool out_bias) {
  return std::make_unique<Attention>(whole, heads, out_bias);
}

}  // namespace paceline::nn
