// Softmax with cross entropy: the loss of every built-in network.
#pragma once

#include <ATen/core/Tensor.h>

namespace paceline::nn {

struct Scored {
  at::Tensor sums;      // [2] double, on the logits' device: sum of losses, number of right answers
  at::Tensor gradient;  // of scale × sum of losses, by the logits; undefined where not wanted
};

/// logits: [samples…, classes]; targets: as many integers. Label smoothing ε: the target is (1−ε) one-hot + ε/classes.
Scored softmax_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing, double scale, bool wants_gradient);

}  // namespace paceline::nn
