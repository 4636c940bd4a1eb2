#include <ATen/ATen.h>
#include <torch/version.h>

#include "paceline/nn/ops/linear.h"
#include "paceline/nn/ops/ops.h"
#include "paceline/nn/rows.h"

#define PACELINE_WITH_WIDE_PRODUCTS (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8))

namespace paceline::nn {
namespace {

/// place ← gᵀx, in mixed precision. A product of 16-bit matrices with a 32-bit result saves a pass for conversion.
void deliver_product(at::Tensor place, const at::Tensor& gradient, const at::Tensor& x, const Pass& pass) {
#if PACELINE_WITH_WIDE_PRODUCTS
  if (place.is_cuda() && place.scalar_type() == at::kFloat && gradient.scalar_type() == at::kBFloat16) {
    if (pass.accumulate) at::addmm_out(place, place, gradient.t(), x, at::kFloat);
    else at::mm_out(place, gradient.t(), x, at::kFloat);
    return;
  }
#endif
  deliver(place, at::mm(gradient.t(), x), pass);  // cast while storing
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor linear_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& weight_gradient,
                           const at::Tensor& bias_gradient, const Pass& pass, bool wants_input) {
  make_weight_gradients(pass, [gradient, x, place = weight_gradient, bias_gradient](const Pass& then) mutable {
    if (place.scalar_type() != gradient.scalar_type()) deliver_product(place, gradient, x, then);
    else if (then.accumulate) place.addmm_(gradient.t(), x);
    else at::mm_out(place, gradient.t(), x);
    if (bias_gradient.defined()) deliver_column_sums(bias_gradient, gradient, then);
  });
  return wants_input ? at::mm(gradient, weight) : at::Tensor();
}

namespace {

class Fc final : public Op {
 public:
  explicit Fc(const graph::Layer& layer) : bias_(layer.bias) {}

  at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass&, Tensors& saved) const override {
    const at::Tensor rows = inputs[0].reshape({-1, inputs[0].size(-1)});  // a sequence consists of rows too
    saved = {rows};
    at::Tensor out = linear_forward(rows, weights.values[0], bias_ ? weights.values[1] : at::Tensor());
    if (inputs[0].dim() == 2) return out;
    auto shape = inputs[0].sizes().vec();
    shape.back() = out.size(1);
    return out.view(shape);
  }

  Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                   bool wants_input) const override {
    const at::Tensor input = linear_backward(gradient.reshape({-1, gradient.size(-1)}), saved[0], weights.values[0], weights.gradients[0],
                                             bias_ ? weights.gradients[1] : at::Tensor(), pass, wants_input);
    if (!wants_input || gradient.dim() == 2) return {input};
    auto shape = gradient.sizes().vec();
    shape.back() = input.size(1);
    return {input.view(shape)};
  }

 private:
  bool bias_;
};

}  // namespace

MadeOp make_fc(const graph::Layer& layer, bool) { return std::make_unique<Fc>(layer); }

}  // namespace paceline::nn
