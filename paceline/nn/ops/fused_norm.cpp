#include "paceline/nn/ops/fused_norm.h"

#include <ATen/ATen.h>

#include "paceline/base/error.h"
#include "paceline/nn/norm_cuda.h"
#include "paceline/nn/ops/ops.h"
#include "paceline/tensor/recorded.h"

namespace paceline::nn {

#if PACELINE_WITH_CUDA

namespace {

class FusedNormOp final : public Op {
 public:
  FusedNormOp(const graph::Layer& layer, const FusedNorm& with)
      : name_(layer.name), with_(with), momentum_(static_cast<float>(layer.momentum)), epsilon_(static_cast<float>(layer.epsilon)) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const override {
    const at::Tensor x = inputs[0].contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor residual = with_.residual ? inputs[1].contiguous(at::MemoryFormat::ChannelsLast) : at::Tensor();
    const NormShape shape = shape_of(x);
    void* stream = tensor::current_stream(x.device());
    at::Tensor mean = weights.statistics[0], inverse;
    if (pass.training) {
      refuse_one_value(name_, shape.rows);
      mean = at::empty_like(weights.statistics[0]);
      inverse = at::empty_like(mean);
      const at::Tensor partial = scratch(mean, shape);
      launch_norm_statistics(shape, x.data_ptr(), epsilon_, momentum_, mean.data_ptr<float>(), inverse.data_ptr<float>(),
                             weights.statistics[0].data_ptr<float>(), weights.statistics[1].data_ptr<float>(),
                             {partial.data_ptr<float>(), counter(x)}, stream);
    }
    at::Tensor y = at::empty_like(x);
    launch_norm_apply(shape, x.data_ptr(), with_.residual ? residual.data_ptr() : nullptr, mean.data_ptr<float>(),
                      (pass.training ? inverse : weights.statistics[1]).data_ptr<float>(), pass.training ? 0 : epsilon_,
                      weights.values[0].data_ptr<float>(), weights.values[1].data_ptr<float>(), with_.relu, y.data_ptr(), stream);
    saved = {x, mean, inverse, with_.residual ? y : at::Tensor()};
    return y;
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved, bool) const override {
    ensure(pass.training, "a backward pass through a fused norm follows a forward pass in training");
    const at::Tensor dense = gradient.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor &x = saved[0], &mean = saved[1], &inverse = saved[2], &y = saved[3];
    const NormShape shape = shape_of(x);
    void* stream = tensor::current_stream(x.device());
    const NormBackward backward = {.gradient = dense.data_ptr(),
                                   .x = x.data_ptr(),
                                   .y = with_.residual ? y.data_ptr() : nullptr,
                                   .mean = mean.data_ptr<float>(),
                                   .inverse_deviation = inverse.data_ptr<float>(),
                                   .weight = weights.values[0].data_ptr<float>(),
                                   .bias = weights.values[1].data_ptr<float>(),
                                   .relu = with_.relu};
    const at::Tensor sums = at::empty({2 * shape.channels}, mean.options()), partial = scratch(mean, shape);
    const at::Tensor masked = with_.residual ? at::empty_like(x) : at::Tensor();
    void* masked_place = with_.residual ? masked.data_ptr() : nullptr;
    launch_norm_backward_reduce(shape, backward, pass.accumulate, weights.gradients[0].data_ptr<float>(),
                                weights.gradients[1].data_ptr<float>(), sums.data_ptr<float>(), masked_place,
                                {partial.data_ptr<float>(), counter(x)}, stream);
    const at::Tensor x_gradient = at::empty_like(x);
    launch_norm_backward_apply(shape, backward, sums.data_ptr<float>(), masked_place, x_gradient.data_ptr(), stream);
    return with_.residual ? Tensors{x_gradient, masked} : Tensors{x_gradient};
  }

 private:
  static NormShape shape_of(const at::Tensor& x) {
    return {x.size(0) * x.size(2) * x.size(3), static_cast<int>(x.size(1)), x.scalar_type() == at::kBFloat16};
  }

  static at::Tensor scratch(const at::Tensor& like, const NormShape& shape) {
    return at::empty({kMostNormBlocks * 2 * shape.channels}, like.options());
  }

  /// One counter per layer: every launch leaves it at zero, and the launches of a layer follow each other on one stream.
  unsigned* counter(const at::Tensor& x) const {
    if (!counter_.defined()) counter_ = at::zeros({1}, x.options().dtype(at::kInt));
    return reinterpret_cast<unsigned*>(counter_.data_ptr<int>());
  }

  std::string name_;
  FusedNorm with_;
  float momentum_, epsilon_;
  mutable at::Tensor counter_;
};

}  // namespace

bool can_fuse(const graph::Layer& layer, const c10::Device& device, c10::ScalarType type) {
  const std::int64_t channels = layer.output[0];
  return device.is_cuda() && (type == c10::kBFloat16 || type == c10::kFloat) && layer.scale && channels % 8 == 0 &&
         channels <= kMostNormChannels;
}

std::unique_ptr<Op> make_fused_norm(const graph::Layer& layer, const FusedNorm& with) { return std::make_unique<FusedNormOp>(layer, with); }

#else

bool can_fuse(const graph::Layer&, const c10::Device&, c10::ScalarType) { return false; }

std::unique_ptr<Op> make_fused_norm(const graph::Layer&, const FusedNorm&) { throw InternalError("no fused norm in a build without CUDA"); }

#endif

}  // namespace paceline::nn
