#include <ATen/ATen.h>

#include "paceline/nn/ops/dropout.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {

at::Tensor dropout_mask(const at::Tensor& values, const MaskPart& part, double keep, const Pass& pass) {
  if (keep >= 1) return {};
  if (pass.masks) return pass.masks->draw(values, part, keep);
  return draw_mask(values, part, keep);
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
    if (!batch_of_workers_ || keep_ >= 1 || !pass.masks) return dropout_mask(values, part_, keep_, pass);
    std::vector<at::Tensor> masks;
    std::int64_t begin = 0;
    for (const Share& share : pass.shares) {
      pass.masks->seed(chance_of(share.chance, *batch_of_workers_));
      if (share.samples > 0) masks.push_back(dropout_mask(values.narrow(0, begin, share.samples), part_, keep_, pass));
      begin += share.samples;
    }
    return at::cat(masks);
  }

  double keep_;
  MaskPart part_;
  std::optional<std::size_t> batch_of_workers_;  // the layer
};

}  // namespace

MadeOp make_dropout(const graph::Layer& layer, bool) { return std::make_unique<Dropout>(layer); }
MadeOp make_dropout_part(const graph::Layer& whole, const MaskPart& part, std::optional<std::size_t> batch_of_workers) {
  return std::make_unique<Dropout>(whole, part, batch_of_workers);
}

}  // namespace paceline::nn
