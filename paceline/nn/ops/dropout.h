// The mask of a dropout: 0 with probability 1 − keep, otherwise 1/keep.
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

/// Shaped like `values`; undefined where nothing is dropped.
at::Tensor dropout_mask(const at::Tensor& values, double keep, const Pass& pass);

}  // namespace paceline::nn
