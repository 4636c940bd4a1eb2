// Layers of a transformer that share a pass over memory, in one kernel on a GPU (nn/rows.h).
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

/// The sum of two inputs and its layer norm (ops/norm.cpp). Saves the sum first.
std::unique_ptr<Op> make_sum_and_norm(const graph::Layer& layer_norm);

/// A product with a bias, and GELU.
std::unique_ptr<Op> make_fc_and_gelu();

}  // namespace paceline::nn
