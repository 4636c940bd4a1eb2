#include <ATen/ATen.h>

#include "paceline/nn/ops/dropout.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {

namespace {

at::Tensor drawn(at::Tensor mask, double keep, const Pass& pass) {
  if (pass.generator.defined()) mask.bernoulli_(keep, pass.generator);
  else mask.bernoulli_(keep);
  return mask.div_(keep);
}

}  // namespace

at::Tensor dropout_mask(const at::Tensor& values, double keep, const Pass& pass) {
  return keep < 1 ? drawn(at::empty_like(values), keep, pass) : at::Tensor();
}

at::Tensor dropout_mask(const at::Tensor& values, const MaskPart& part, double keep, const Pass& pass) {
  if (keep >= 1) return {};
  auto shape = values.sizes().vec();
  shape[static_cast<std::size_t>(part.dim)] = part.all;
  const at::Tensor whole = drawn(at::empty(shape, values.options(), values.suggest_memory_format()), keep, pass);
  return whole.narrow(part.dim, part.first, part.count).contiguous(values.suggest_memory_format());
}

namespace {

class Dropout final : public Op {
 public:
  explicit Dropout(const graph::Layer& layer, const MaskPart& part = {}) : keep_(1 - layer.probability), part_(part) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass& pass, Tensors& saved) const override {
    const at::Tensor mask = pass.training ? mask_for(inputs[0], pass) : at::Tensor();
    if (!mask.defined()) return inputs[0];
    saved = {mask};
    return inputs[0] * mask;
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {saved.empty() ? gradient : gradient * saved[0]};
  }

 private:
  at::Tensor mask_for(const at::Tensor& values, const Pass& pass) const {
    return part_.all > 0 ? dropout_mask(values, part_, keep_, pass) : dropout_mask(values, keep_, pass);
  }

  double keep_;
  MaskPart part_;  // all = 0: the whole
};

}  // namespace

MadeOp make_dropout(const graph::Layer& layer, bool) { return std::make_unique<Dropout>(layer); }
MadeOp make_dropout_part(const graph::Layer& whole, const MaskPart& part) { return std::make_unique<Dropout>(whole, part); }

}  // namespace paceline::nn
