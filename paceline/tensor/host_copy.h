// Copies in host memory, of what changes while a checkpoint is written: a GPU may have no room for a second one.
#pragma once

#include <ATen/ATen.h>

namespace paceline::tensor {

inline at::Tensor host_copy(const at::Tensor& tensor) { return tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true); }

}  // namespace paceline::tensor
