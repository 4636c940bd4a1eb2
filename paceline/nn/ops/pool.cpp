#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

struct Window {
  std::vector<std::int64_t> kernel, stride, padding;
  bool ceil_mode, count_padding;

  explicit Window(const graph::Layer& layer)
      : kernel{layer.kernel_h, layer.kernel_w},
        stride{layer.stride, layer.stride},
        padding{layer.padding_h, layer.padding_w},
        ceil_mode(layer.ceil_mode),
        count_padding(layer.count_padding) {}
};

class MaxPool final : public Op {
 public:
  explicit MaxPool(const graph::Layer& layer) : window_(layer) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    auto [out, indices] =
        at::max_pool2d_with_indices(inputs[0], window_.kernel, window_.stride, window_.padding, {1, 1}, window_.ceil_mode);
    saved = {inputs[0], indices};
    return out;
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {at::max_pool2d_with_indices_backward(gradient, saved[0], window_.kernel, window_.stride, window_.padding, {1, 1},
                                                 window_.ceil_mode, saved[1])};
  }

 private:
  Window window_;
};

class AvgPool final : public Op {
 public:
  explicit AvgPool(const graph::Layer& layer) : window_(layer) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    saved = {inputs[0]};
    return at::avg_pool2d(inputs[0], window_.kernel, window_.stride, window_.padding, window_.ceil_mode, window_.count_padding,
                          c10::nullopt);
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {at::avg_pool2d_backward(gradient, saved[0], window_.kernel, window_.stride, window_.padding, window_.ceil_mode,
                                    window_.count_padding, c10::nullopt)};
  }

 private:
  Window window_;
};

/// Adaptive mean: to one value per channel, or to a given size as in torchvision's AlexNet and VGG.
class GlobalPool final : public Op {
 public:
  explicit GlobalPool(const graph::Layer& layer) : height_(layer.output.at(1)), width_(layer.output.at(2)) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    const at::Tensor& x = inputs[0];
    saved = {x};
    if (height_ == 1 && width_ == 1) return x.mean({2, 3}, true);
    return at::_adaptive_avg_pool2d(x, {height_, width_});
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    const at::Tensor& x = saved[0];
    if (height_ == 1 && width_ == 1) return {(gradient / (x.size(2) * x.size(3))).expand_as(x)};
    return {at::_adaptive_avg_pool2d_backward(gradient, x)};
  }

 private:
  std::int64_t height_, width_;
};

}  // namespace

MadeOp make_pool(const graph::Layer& layer, bool) {
  if (layer.kind == graph::Kind::max_pool) return std::make_unique<MaxPool>(layer);
  if (layer.kind == graph::Kind::avg_pool) return std::make_unique<AvgPool>(layer);
  return std::make_unique<GlobalPool>(layer);
}

}  // namespace paceline::nn
