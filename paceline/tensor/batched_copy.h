// Copies many small tensors into the arena in a few launches: a GPU spends longer on launching sixty copies than on executing them.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace paceline::tensor {

/// A tensor and where to copy its values.
struct BatchedCopy {
  at::Tensor place, values;
};

/// place ← values, or place += values, for all copies. Few launches on CUDA for bf16 or fp32 values, if place is fp32 and both have
/// the same layout; LibTorch's own copy otherwise.
void copy_together(std::span<const BatchedCopy> copies, bool add);

}  // namespace paceline::tensor
