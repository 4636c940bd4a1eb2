#include <ATen/ATen.h>
#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/nn/joint_norm.h"
#include "paceline/nn/ops/ops.h"
#include "paceline/nn/rows.h"

namespace paceline::nn {
namespace {

// LibTorch picks the implementation (its own, cuDNN's) in the forward pass and must be told again in the backward pass, so its number is
// saved too.
class BatchNorm final : public Op {
 public:
  explicit BatchNorm(const graph::Layer& layer)
      : name_(layer.name), momentum_(layer.momentum), epsilon_(layer.epsilon), scaled_(layer.scale) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    if (pass.training && pass.sum_over_workers) return forward_together(inputs[0], weights, pass, saved);
    if (pass.training) refuse_one_value(name_, inputs[0].numel() / inputs[0].size(1));
    auto [out, mean, inverse_deviation, reserve, implementation] =
        at::_batch_norm_impl_index(inputs[0], scale(weights), shift(weights), weights.statistics[0], weights.statistics[1], pass.training,
                                   momentum_, epsilon_, at::globalContext().userEnabledCuDNN());
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
  at::Tensor forward_together(const at::Tensor& input, const Weights& weights, const Pass& pass, Tensors& saved) const {
    const NormTensors norm{scale(weights), shift(weights), weights.statistics[0], weights.statistics[1], momentum_, epsilon_};
    const JointNorm joint = joint_norm(input, norm, pass.sum_over_workers, name_);
    saved = {input, joint.mean, joint.inverse_deviation, joint.count};
    return joint.output;
  }

  at::Tensor backward_together(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved) const {
    const JointNorm joint{{}, saved[1], saved[2], saved[3]};
    const JointNormGradients made = joint_norm_gradients(gradient, saved[0], scale(weights), joint, pass.sum_over_workers);
    if (scaled_) deliver(weights.gradients[0], made.scale, pass);
    deliver(weights.gradients.back(), made.shift, pass);
    return made.input;
  }

  /// Ones if the layer has no weight, because cuDNN needs a tensor.
  at::Tensor scale(const Weights& weights) const {
    const at::Tensor value = exact(weights.values[0], weights);
    return scaled_ ? value : at::ones_like(value);
  }
  static at::Tensor shift(const Weights& weights) { return exact(weights.values.back(), weights); }
  /// Converted to the type of the statistics, as LibTorch requires, if the arena stores 16 bits; otherwise unchanged.
  static at::Tensor exact(const at::Tensor& value, const Weights& weights) { return value.to(weights.statistics[0].scalar_type()); }

  std::string name_;
  double momentum_, epsilon_;
  bool scaled_;
};

class LayerNorm final : public Op {
 public:
  /// `of_sum`: the norm of its two inputs' sum, which it saves first.
  explicit LayerNorm(const graph::Layer& layer, bool of_sum = false) : epsilon_(layer.epsilon), of_sum_(of_sum) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor residual = of_sum_ ? inputs[1].contiguous() : at::Tensor();
    const NormedRows made = normed_rows(inputs[0].contiguous(), residual, norm_weights(weights), epsilon_);
    saved = {made.sum, made.mean, made.inverse};
    return made.y;
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    return backward_onto(gradient, {}, weights, pass, saved);
  }

  Tensors backward_onto(const at::Tensor& gradient, const at::Tensor& onto, const Weights& weights, const Pass& pass,
                        const Tensors& saved) const override {
    const NormedRows made{.y = {}, .sum = saved[0], .mean = saved[1], .inverse = saved[2]};
    const at::Tensor input = normed_rows_back(gradient.contiguous(), made, norm_weights(weights), onto, pass);
    return of_sum_ ? Tensors{input, input} : Tensors{input};
  }

 private:
  double epsilon_;
  bool of_sum_;
};

}  // namespace

void refuse_one_value(const std::string& norm, std::int64_t values) {
  if (values == 1)
    throw ConfigError(
        fmt::format("batch norm '{}' has only one value per channel in a training pass, which has no variance; use a larger data.batch, "
                    "data.drop_last=true, fewer train.micro_batches, or larger images",
                    norm));
}

MadeOp make_batch_norm(const graph::Layer& layer, bool) { return std::make_unique<BatchNorm>(layer); }
MadeOp make_layer_norm(const graph::Layer& layer, bool) { return std::make_unique<LayerNorm>(layer); }
std::unique_ptr<Op> make_sum_and_norm(const graph::Layer& layer_norm) { return std::make_unique<LayerNorm>(layer_norm, /*of_sum=*/true); }

}  // namespace paceline::nn
