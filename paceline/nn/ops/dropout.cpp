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
  explicit Dropout(const graph::Layer& layer, const MaskPart& part = {}, std::optional<std::size_t> batch_of_workers = std::nullopt)
      : keep_(1 - layer.probability), part_(part), batch_of_workers_(batch_of_workers) {}

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
    if (part_.all == 0) return dropout_mask(values, keep_, pass);
    const bool by_worker = batch_of_workers_ && pass.generator.defined() && pass.shares.front().chance && keep_ < 1;
    if (!by_worker) return dropout_mask(values, part_, keep_, pass);
    std::vector<at::Tensor> masks;
    std::int64_t begin = 0;
    for (const Share& share : pass.shares) {
      at::Generator generator = pass.generator;
      generator.set_current_seed(chance_of(*share.chance, *batch_of_workers_));
      if (share.samples > 0) masks.push_back(dropout_mask(values.narrow(0, begin, share.samples), part_, keep_, pass));
      begin += share.samples;
    }
    return at::cat(masks);
  }

  double keep_;
  MaskPart part_;                                // all = 0: the whole
  std::optional<std::size_t> batch_of_workers_;  // the layer
};

}  // namespace

MadeOp make_dropout(const graph::Layer& layer, bool) { return std::make_unique<Dropout>(layer); }
MadeOp make_dropout_part(const graph::Layer& whole, const MaskPart& part, std::optional<std::size_t> batch_of_workers) {
  return std::make_unique<Dropout>(whole, part, batch_of_workers);
}

}  // namespace paceline::nn
