// Experts that the workers of the data axis share: each worker holds an equal number of them, and every position is sent to those that
// its gate chose.
#pragma once

#include "paceline/nn/op.h"
#include "paceline/nn/tensor_axis.h"

namespace paceline::nn {

/// `workers`: the data axis, which must outlive the op; null: all experts are here. Weights are those of this worker's experts, and the
/// gate. Their gradients are sums over the samples of all workers, the gate's over those of this one.
std::unique_ptr<Op> make_spread_experts(const graph::Layer& layer, const TensorAxis* workers);

}  // namespace paceline::nn
