// Softmax with cross entropy if every rank of the tensor axis only has the logits of some classes. Three small exchanges for each target
// (the largest logit; the sum of exponentials, the target's logit and the sum of logits; the index of the answer) replace gathering the
// logits. Losses and right answers are the same on all ranks; the gradient is that of the rank's own logits.
#pragma once

#include "paceline/nn/loss.h"
#include "paceline/nn/tensor_axis.h"

namespace paceline::nn {

class SplitSoftmaxLoss final : public Loss {
 public:
  /// `comm`: the tensor axis, whose ranks have consecutive parts, of nearly the same size, of all `classes`. It must outlive the loss, and
  /// so must the clock that measures waits.
  SplitSoftmaxLoss(comm::Communicator& comm, std::int64_t classes, double smoothing = 0, const Clock* clock = nullptr)
      : axis_(comm, clock), classes_(classes), smoothing_(smoothing) {}

  Scored score(const at::Tensor& output, const at::Tensor& targets, double scale) const override;
  at::Tensor evaluate(const at::Tensor& output, const at::Tensor& targets) const override;
  Traffic traffic() const override { return axis_.traffic(); }

 private:
  Scored score(const at::Tensor& output, const at::Tensor& targets, double smoothing, double scale, bool wants_gradient) const;

  TensorAxis axis_;
  std::int64_t classes_;
  double smoothing_;
};

}  // namespace paceline::nn
