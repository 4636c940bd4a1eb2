// Local response normalisation (Krizhevsky et al. 2012): y = x / (k + α/n · Σ x²)^β, the sum over n neighbouring channels.
//
// With s the bracket: ∂x_i = g_i s_i^-β − 2αβ/n · x_i · Σ_j g_j x_j s_j^-(β+1), the sum over the same window, which is symmetric for odd n.
#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

class Lrn final : public Op {
 public:
  explicit Lrn(const graph::Layer& layer) : size_(layer.lrn_size), alpha_(layer.lrn_alpha), beta_(layer.lrn_beta), k_(layer.lrn_k) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    const at::Tensor& x = inputs[0];
    const at::Tensor bracket = mean_over_window(x * x, size_ / 2, (size_ - 1) / 2).mul_(alpha_).add_(k_);
    saved = {x, bracket};
    return x * bracket.pow(-beta_);
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    const at::Tensor &x = saved[0], &bracket = saved[1];
    const at::Tensor inner = gradient * x * bracket.pow(-beta_ - 1);
    // The window of the backward pass is mirrored.
    return {gradient * bracket.pow(-beta_) - x * mean_over_window(inner, (size_ - 1) / 2, size_ / 2).mul_(2 * alpha_ * beta_)};
  }

 private:
  /// Mean over `before` channels, the channel itself and `after` channels; those outside count as zero.
  at::Tensor mean_over_window(const at::Tensor& x, std::int64_t before, std::int64_t after) const {
    const at::Tensor padded = at::constant_pad_nd(x, {0, 0, 0, 0, before, after});
    at::Tensor sum = padded.narrow(1, 0, x.size(1)).clone();
    for (std::int64_t shift = 1; shift < size_; ++shift) sum.add_(padded.narrow(1, shift, x.size(1)));
    return sum.div_(static_cast<double>(size_));
  }

  std::int64_t size_;
  double alpha_, beta_, k_;
};

}  // namespace

MadeOp make_lrn(const graph::Layer& layer, bool) { return std::make_unique<Lrn>(layer); }

}  // namespace paceline::nn
