#include "paceline/nn/ops/fused_rows.h"

#include <ATen/ATen.h>

#include "paceline/nn/ops/gelu.h"
#include "paceline/nn/ops/linear.h"
#include "paceline/nn/rows.h"

namespace paceline::nn {
namespace {

class FcAndGelu final : public Op {
 public:
  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor rows = inputs[0].reshape({-1, inputs[0].size(-1)});
    const at::Tensor hidden = linear_forward(rows, weights.values[0], weights.values[1]);
    saved = {rows, hidden};
    auto shape = inputs[0].sizes().vec();
    shape.back() = hidden.size(1);
    return gelu_values(hidden).view(shape);
  }

  Tensors backward(const at::Tensor& given, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    const at::Tensor &rows = saved[0], &hidden = saved[1];
    const at::Tensor gradient = given.reshape({-1, given.size(-1)}).contiguous();
    // If gradients of weights are put off, so is that of the bias, whose sums then take a separate pass.
    const bool now = !pass.put_off;
    const at::Tensor by_hidden =
        now ? gelu_gradient_with_sums(gradient, hidden, weights.gradients[1], pass) : gelu_gradient(gradient, hidden);
    const at::Tensor input = linear_backward(by_hidden, rows, weights.values[0], weights.gradients[0],
                                             now ? at::Tensor() : weights.gradients[1], pass, wants_input);
    if (!wants_input) return {input};
    auto shape = given.sizes().vec();
    shape.back() = input.size(1);
    return {input.view(shape)};
  }
};

}  // namespace

std::unique_ptr<Op> make_fc_and_gelu() { return std::make_unique<FcAndGelu>(); }

}  // namespace paceline::nn
