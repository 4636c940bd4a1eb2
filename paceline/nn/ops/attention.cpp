// Multi-head self-attention with its projections: [batch, T, d] → [batch, T, d].
//
//   q, k, v = x Wqkvᵀ + b;  P = softmax(q kᵀ/√d_head + mask), with dropout in training;  y = (P v) Woᵀ + b
//   backward: ∂v = Pᵀ∂o, ∂P = ∂o vᵀ, ∂S = softmax'(∂P, P), ∂q = ∂S k/√d_head, ∂k = ∂Sᵀ q/√d_head
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "paceline/nn/ops/dropout.h"
#include "paceline/nn/ops/linear.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

class Attention final : public Op {
 public:
  /// `heads`: those of this rank; where they are not all, the output's bias is left out, since others add to the output.
  Attention(const graph::Layer& layer, const graph::Slice::Run& heads)
      : first_(heads.first),
        heads_(heads.count),
        all_heads_(layer.heads),
        head_(layer.output.back() / layer.heads),
        causal_(layer.causal),
        bias_(layer.bias),
        keep_(1 - layer.probability) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    const at::Tensor& x = inputs[0];
    const std::int64_t batch = x.size(0), time = x.size(1), width = x.size(2), head = head_;
    const at::Tensor rows = x.reshape({-1, width});
    const at::Tensor qkv = linear_forward(rows, weights.values[0], bias_ ? weights.values[1] : at::Tensor())
                               .view({batch, time, 3, heads_, head})
                               .permute({2, 0, 3, 1, 4})  // [3, batch, heads, T, head]
                               .contiguous()
                               .view({3, batch * heads_, time, head});
    const at::Tensor q = qkv[0], k = qkv[1], v = qkv[2];
    at::Tensor scores = at::bmm(q, k.transpose(1, 2)).mul_(1 / std::sqrt(static_cast<double>(head)));
    if (causal_) scores.masked_fill_(future(time, x.device()), -std::numeric_limits<double>::infinity());
    const at::Tensor attention = at::softmax(scores, -1);
    const at::Tensor mask = pass.training ? mask_for(attention, batch, pass) : at::Tensor();
    const at::Tensor used = mask.defined() ? attention * mask : attention;
    const at::Tensor mixed = merge(at::bmm(used, v), batch, time);
    saved = {rows, q, k, v, attention, mixed, used, mask};
    return linear_forward(mixed, weights.values[out_], out_bias() ? weights.values[out_ + 1] : at::Tensor()).view({batch, time, width});
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    const at::Tensor &rows = saved[0], &q = saved[1], &k = saved[2], &v = saved[3], &attention = saved[4], &mixed = saved[5],
                     &used = saved[6], &mask = saved[7];
    const std::int64_t batch = gradient.size(0), time = gradient.size(1), width = gradient.size(2), head = head_;
    const at::Tensor in_bias = bias_ ? weights.gradients[1] : at::Tensor(),
                     out_bias_place = out_bias() ? weights.gradients[out_ + 1] : at::Tensor();

    const at::Tensor mixed_gradient =
        linear_backward(gradient.reshape({-1, width}), mixed, weights.values[out_], weights.gradients[out_], out_bias_place, pass, true)
            .view({batch, time, heads_, head})
            .permute({0, 2, 1, 3})
            .reshape({batch * heads_, time, head});
    // The three gradients are written where the projection's backward reads them: [3, batch·heads, T, head].
    at::Tensor parts = at::empty({3, batch * heads_, time, head}, gradient.options());
    at::Tensor dq = parts[0], dk = parts[1], dv = parts[2];
    at::bmm_out(dv, used.transpose(1, 2), mixed_gradient);
    at::Tensor attention_gradient = at::bmm(mixed_gradient, v.transpose(1, 2));
    if (mask.defined()) attention_gradient.mul_(mask);
    const at::Tensor scores_gradient = at::_softmax_backward_data(attention_gradient, attention, -1, attention.scalar_type())
                                           .mul_(1 / std::sqrt(static_cast<double>(head)));
    at::bmm_out(dq, scores_gradient, k);
    at::bmm_out(dk, scores_gradient.transpose(1, 2), q);
    const at::Tensor qkv_gradient =
        parts.view({3, batch, heads_, time, head}).permute({1, 3, 0, 2, 4}).reshape({batch * time, 3 * heads_ * head});
    const at::Tensor input = linear_backward(qkv_gradient, rows, weights.values[0], weights.gradients[0], in_bias, pass, wants_input);
    return {wants_input ? input.view({batch, time, width}) : input};
  }

 private:
  at::Tensor merge(const at::Tensor& heads, std::int64_t batch, std::int64_t time) const {  // [batch·heads, T, head] → [batch·T, d]
    const std::int64_t head = heads.size(2);
    return heads.view({batch, heads_, time, head}).permute({0, 2, 1, 3}).reshape({batch * time, heads_ * head});
  }

  bool out_bias() const { return bias_ && heads_ == all_heads_; }

  at::Tensor mask_for(const at::Tensor& attention, std::int64_t batch, const Pass& pass) const {  // [batch·heads, T, T]
    if (heads_ == all_heads_) return dropout_mask(attention, {}, keep_, pass);
    const at::Tensor by_head = attention.view({batch, heads_, attention.size(1), attention.size(2)});
    const at::Tensor mask = dropout_mask(by_head, {.dim = 1, .all = all_heads_, .first = first_, .count = heads_}, keep_, pass);
    return mask.defined() ? mask.reshape(attention.sizes()) : mask;
  }

  static at::Tensor future(std::int64_t time, const c10::Device& device) {
    return at::ones({time, time}, at::TensorOptions().dtype(at::kBool).device(device)).triu_(1);
  }

  std::int64_t first_, heads_, all_heads_, head_;  // heads [first_, first_ + heads_) of all_heads_, head_ features each
  bool causal_, bias_;
  double keep_;                      // share of the attention weights that dropout keeps
  std::size_t out_ = bias_ ? 2 : 1;  // index of the output projection among the weights
};

}  // namespace

MadeOp make_attention(const graph::Layer& layer, bool) {
  return std::make_unique<Attention>(layer, graph::Slice::Run{.first = 0, .count = layer.heads});
}
MadeOp make_attention_part(const graph::Layer& whole, const graph::Slice::Run& heads) { return std::make_unique<Attention>(whole, heads); }

}  // namespace paceline::nn
