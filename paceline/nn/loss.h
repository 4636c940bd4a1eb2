// The loss that training minimises. Softmax with cross entropy is the loss of the built-in networks; a user's is any differentiable
// function.
//
// Sums are over targets: a sample has one, or one for each position or value. So the sums of shares, however uneven, add up to the batch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "paceline/nn/traffic.h"

namespace paceline::nn {

struct Scored {
  at::Tensor sums;      // [2] double, on the output's device: sum of losses, number of right answers
  at::Tensor gradient;  // of scale × sum of losses with respect to the output; undefined if not wanted
};

class Loss {
 public:
  virtual ~Loss() = default;
  /// The result of a training pass.
  virtual Scored score(const at::Tensor& output, const at::Tensor& targets, double scale) const = 0;
  /// [2 + metrics().size()] double, on the output's device: sum of losses, number of right answers, and the sums of the other metrics.
  virtual at::Tensor evaluate(const at::Tensor& output, const at::Tensor& targets) const = 0;
  /// Whether it counts right answers; otherwise their number is 0.
  virtual bool counts_right() const { return true; }
  virtual std::vector<std::string> metrics() const { return {}; }
  /// What it sent to other ranks since it was made.
  virtual Traffic traffic() const { return {}; }
};

/// logits: [samples…, classes]; targets: as many integers. Label smoothing ε: the target is (1−ε) one-hot + ε/classes. Not in evaluations.
class SoftmaxLoss final : public Loss {
 public:
  explicit SoftmaxLoss(double smoothing = 0) : smoothing_(smoothing) {}
  Scored score(const at::Tensor& output, const at::Tensor& targets, double scale) const override;
  at::Tensor evaluate(const at::Tensor& output, const at::Tensor& targets) const override;

 private:
  double smoothing_;
};

/// In chunks of rows, or in one kernel on a GPU: there is never an fp32 copy of all logits.
Scored softmax_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing, double scale, bool wants_gradient);

/// Computes a number for a batch: the mean over its targets, in a tensor of one element.
using Mean = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// A user's loss, differentiated by autograd, with metrics for the evaluation. A metric named "accuracy", the share of right answers, is
/// also shown during training.
class FunctionLoss final : public Loss {
 public:
  struct Metric {
    std::string name;
    Mean mean;
  };
  explicit FunctionLoss(Mean loss, std::vector<Metric> metrics = {});

  Scored score(const at::Tensor& output, const at::Tensor& targets, double scale) const override;
  at::Tensor evaluate(const at::Tensor& output, const at::Tensor& targets) const override;
  bool counts_right() const override { return accuracy_ != nullptr; }
  std::vector<std::string> metrics() const override;

 private:
  at::Tensor right(const at::Tensor& output, const at::Tensor& targets) const;

  Mean loss_, accuracy_;
  std::vector<Metric> others_;
};

}  // namespace paceline::nn
