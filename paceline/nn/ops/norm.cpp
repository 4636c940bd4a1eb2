#include <ATen/ATen.h>
#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

// LibTorch picks the implementation (its own, cuDNN's) in the forward pass and must be told again in the backward pass, so its number is
// saved along.
class BatchNorm final : public Op {
 public:
  explicit BatchNorm(const graph::Layer& layer)
      : name_(layer.name), momentum_(layer.momentum), epsilon_(layer.epsilon), scaled_(layer.scale) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    if (pass.training && pass.sum_over_workers) return forward_together(inputs[0], weights, pass, saved);
    if (pass.training) refuse_one_value(name_, inputs[0].numel() / inputs[0].size(1));
    auto [out, mean, inverse_deviation, reserve, implementation] =
        at::_batch_norm_impl_index(inputs[0], scale(weights), weights.values.back(), weights.statistics[0], weights.statistics[1],
                                   pass.training, momentum_, epsilon_, at::globalContext().userEnabledCuDNN());
    saved = {inputs[0], mean, inverse_deviation, reserve, at::scalar_tensor(implementation, at::kLong)};
    return out;
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    if (pass.training && pass.sum_over_workers) return {backward_together(gradient, weights, pass, saved)};
    auto [input, scale_gradient, shift_gradient] = at::_batch_norm_impl_index_backward(
        saved[4].item<std::int64_t>(), saved[0], gradient, scale(weights), weights.statistics[0], weights.statistics[1], saved[1], saved[2],
        pass.training, epsilon_, {true, true, true}, saved[3]);
    if (scaled_) deliver(weights.gradients[0], scale_gradient, pass);
    deliver(weights.gradients.back(), shift_gradient, pass);
    return {input};
  }

 private:
  // The statistics of all workers' samples: each sums its own, and the sums are added up. Deviations are taken from the mean of all, in a
  // second sum: the difference of two large sums would lose digits.
  at::Tensor forward_together(const at::Tensor& input, const Weights& weights, const Pass& pass, Tensors& saved) const {
    const at::Tensor x = input.to(weights.statistics[0].scalar_type());
    const std::vector<std::int64_t> over = all_but_channels(x);
    const std::int64_t channels = x.size(1), values = x.numel() / channels;
    at::Tensor sums = at::cat({x.sum(over), at::full({1}, static_cast<double>(values), x.options())});
    pass.sum_over_workers(sums);
    // Asked only where it can be so: on a GPU, to ask is to wait.
    if (values <= 1) refuse_one_value(name_, sums[channels].item<std::int64_t>());
    const at::Tensor count = sums[channels], mean = sums.narrow(0, 0, channels) / count;
    at::Tensor squares = (x - as_channels(mean, x)).square().sum(over);
    pass.sum_over_workers(squares);
    const at::Tensor variance = squares / count, inverse_deviation = (variance + epsilon_).rsqrt();
    weights.statistics[0].lerp_(mean, momentum_);
    weights.statistics[1].lerp_(squares / (count - 1), momentum_);
    saved = {input, mean, inverse_deviation, count};
    const at::Tensor factor = inverse_deviation * scale(weights).to(x.scalar_type());
    const at::Tensor shift = weights.values.back().to(x.scalar_type()) - mean * factor;
    return (x * as_channels(factor, x) + as_channels(shift, x)).to(input.scalar_type());
  }

  at::Tensor backward_together(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved) const {
    const at::Tensor &mean = saved[1], &inverse_deviation = saved[2], &count = saved[3];
    const at::Tensor x = saved[0].to(mean.scalar_type()), dy = gradient.to(mean.scalar_type());
    const std::vector<std::int64_t> over = all_but_channels(x);
    const std::int64_t channels = x.size(1);
    const at::Tensor normalised = (x - as_channels(mean, x)) * as_channels(inverse_deviation, x);
    const at::Tensor shift_gradient = dy.sum(over), scale_gradient = (dy * normalised).sum(over);
    if (scaled_) deliver(weights.gradients[0], scale_gradient, pass);
    deliver(weights.gradients.back(), shift_gradient, pass);
    at::Tensor sums = at::cat({shift_gradient, scale_gradient});
    pass.sum_over_workers(sums);
    sums = sums / count;
    const at::Tensor centred =
        dy - as_channels(sums.narrow(0, 0, channels), x) - normalised * as_channels(sums.narrow(0, channels, channels), x);
    return (centred * as_channels(inverse_deviation * scale(weights).to(mean.scalar_type()), x)).to(gradient.scalar_type());
  }

  static std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
    std::vector<std::int64_t> dims = {0};
    for (std::int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
    return dims;
  }
  static at::Tensor as_channels(const at::Tensor& values, const at::Tensor& x) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape[1] = x.size(1);
    return values.view(shape);
  }

  /// One where the layer has none: cuDNN wants a tensor there.
  at::Tensor scale(const Weights& weights) const { return scaled_ ? weights.values[0] : at::ones_like(weights.values[0]); }

  std::string name_;
  double momentum_, epsilon_;
  bool scaled_;
};

class LayerNorm final : public Op {
 public:
  explicit LayerNorm(const graph::Layer& layer) : epsilon_(layer.epsilon), features_{layer.output.back()} {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor shift = weights.values.size() > 1 ? weights.values[1] : at::Tensor();
    auto [out, mean, inverse_deviation] = at::native_layer_norm(inputs[0], features_, weights.values[0], shift, epsilon_);
    saved = {inputs[0], mean, inverse_deviation};
    return out;
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    const bool shifted = weights.values.size() > 1;
    auto [input, scale, shift] =
        at::native_layer_norm_backward(gradient.contiguous(), saved[0], features_, saved[1], saved[2], weights.values[0],
                                       shifted ? weights.values[1] : at::Tensor(), {true, true, shifted});
    deliver(weights.gradients[0], scale, pass);
    if (shifted) deliver(weights.gradients[1], shift, pass);
    return {input};
  }

 private:
  double epsilon_;
  std::vector<std::int64_t> features_;
};

}  // namespace

void refuse_one_value(const std::string& norm, std::int64_t values) {
  if (values == 1)
    throw ConfigError(fmt::format(
        "batch norm '{}' has one value a channel to normalise in a training pass, which has no variance; use a larger data.batch, "
        "data.drop_last=true or fewer train.micro_batches, or larger pictures",
        norm));
}

MadeOp make_batch_norm(const graph::Layer& layer, bool) { return std::make_unique<BatchNorm>(layer); }
MadeOp make_layer_norm(const graph::Layer& layer, bool) { return std::make_unique<LayerNorm>(layer); }

}  // namespace paceline::nn
