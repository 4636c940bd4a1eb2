#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

class Conv final : public Op {
 public:
  explicit Conv(const graph::Layer& layer)
      : stride_{layer.stride, layer.stride}, padding_{layer.padding_h, layer.padding_w}, groups_(layer.groups), bias_(layer.bias) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    saved = {inputs[0]};
    return at::convolution(inputs[0], weights.values[0], bias_ ? weights.values[1] : at::Tensor(), stride_, padding_, {1, 1}, false, {0, 0},
                           groups_);
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    if (!pass.put_off) return {gradients_of(gradient, weights, pass, saved, wants_input, true)};
    pass.put_off->push_back(
        [this, gradient, weights, saved](const Pass& then) { gradients_of(gradient, weights, then, saved, false, true); });
    return {wants_input ? gradients_of(gradient, weights, pass, saved, true, false) : at::Tensor()};
  }

 private:
  /// One call computes both gradients, which saves a pass over the output's gradient if both are wanted.
  at::Tensor gradients_of(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool of_input,
                          bool of_weights) const {
    c10::OptionalArrayRef<std::int64_t> bias_sizes;
    const std::int64_t channels[] = {gradient.size(1)};
    if (bias_) bias_sizes = c10::IntArrayRef(channels);
    auto [input, weight, bias] = at::convolution_backward(gradient, saved[0], weights.values[0], bias_sizes, stride_, padding_, {1, 1},
                                                          false, {0, 0}, groups_, {of_input, of_weights, of_weights && bias_});
    if (of_weights) deliver(weights.gradients[0], weight, pass);
    if (of_weights && bias_) deliver(weights.gradients[1], bias, pass);
    return input;
  }

  std::vector<std::int64_t> stride_, padding_;
  std::int64_t groups_;
  bool bias_;
};

}  // namespace

MadeOp make_conv(const graph::Layer& layer, bool) { return std::make_unique<Conv>(layer); }

}  // namespace paceline::nn
