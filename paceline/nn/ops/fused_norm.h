// Batch norm together with the relu and the residual sum after it, as one op on a GPU (norm_cuda.h).
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

struct FusedNorm {
  bool relu = false;
  bool residual = false;  // the op's second input is added before the relu
};

/// Whether this build and layer can be fused for a module on `device` that computes in `type`.
bool can_fuse(const graph::Layer& batch_norm, const c10::Device& device, c10::ScalarType type);

/// Inputs: the norm's, then the residual. Weights and statistics: the norm's.
std::unique_ptr<Op> make_fused_norm(const graph::Layer& batch_norm, const FusedNorm& with);

}  // namespace paceline::nn
