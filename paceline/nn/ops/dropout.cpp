#include <ATen/ATen.h>

#include "paceline/nn/ops/dropout.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {

at::Tensor dropout_mask(const at::Tensor& values, double keep, const Pass& pass) {
  if (keep >= 1) return {};
  at::Tensor mask = at::empty_like(values);
  if (pass.generator.defined()) mask.bernoulli_(keep, pass.generator);
  else mask.bernoulli_(keep);
  return mask.div_(keep);
}

namespace {

class Dropout final : public Op {
 public:
  explicit Dropout(const graph::Layer& layer) : keep_(1 - layer.probability) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass& pass, Tensors& saved) const override {
    const at::Tensor mask = pass.training ? dropout_mask(inputs[0], keep_, pass) : at::Tensor();
    if (!mask.defined()) return inputs[0];
    saved = {mask};
    return inputs[0] * mask;
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {saved.empty() ? gradient : gradient * saved[0]};
  }

 private:
  double keep_;
};

}  // namespace

MadeOp make_dropout(const graph::Layer& layer, bool) { return std::make_unique<Dropout>(layer); }

}  // namespace paceline::nn
