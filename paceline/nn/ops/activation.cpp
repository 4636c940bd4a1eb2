// relu, relu6, tanh and sigmoid: they know their slope from their output and may overwrite their input.
#include <ATen/ATen.h>

#include "paceline/base/error.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

using graph::Kind;

class Activation final : public Op {
 public:
  Activation(Kind kind, bool in_place) : kind_(kind), in_place_(in_place) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    const at::Tensor& x = inputs[0];
    at::Tensor out;
    switch (kind_) {
      case Kind::relu: out = in_place_ ? x.relu_() : x.relu(); break;
      case Kind::relu6: out = in_place_ ? x.clamp_(0, 6) : x.clamp(0, 6); break;
      case Kind::tanh: out = in_place_ ? x.tanh_() : x.tanh(); break;
      case Kind::sigmoid: out = in_place_ ? x.sigmoid_() : x.sigmoid(); break;
      default: throw InternalError("not an activation");
    }
    saved = {out};
    return out;
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    const at::Tensor& out = saved[0];
    switch (kind_) {
      case Kind::relu: return {at::threshold_backward(gradient, out, 0)};
      case Kind::relu6: return {relu6_backward(gradient, out)};
      case Kind::tanh: return {at::tanh_backward(gradient, out)};
      case Kind::sigmoid: return {at::sigmoid_backward(gradient, out)};
      default: throw InternalError("not an activation");
    }
  }

 private:
  static at::Tensor relu6_backward(const at::Tensor& gradient, const at::Tensor& out) {
    if (!out.is_cpu() || out.scalar_type() != at::kBFloat16) return at::hardtanh_backward(gradient, out, 0, 6);
    // LibTorch 1.13 has no such kernel. A gradient passes or does not, so that nothing is rounded.
    return at::hardtanh_backward(gradient.to(at::kFloat), out.to(at::kFloat), 0, 6).to(at::kBFloat16);
  }

  Kind kind_;
  bool in_place_;
};

}  // namespace

MadeOp make_activation(const graph::Layer& layer, bool in_place) { return std::make_unique<Activation>(layer.kind, in_place); }

}  // namespace paceline::nn
