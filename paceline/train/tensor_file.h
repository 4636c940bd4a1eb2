// Between LibTorch's tensors and those of a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "paceline/base/safetensors.h"
#include "paceline/step/strategy.h"

namespace paceline::train {

/// Tensors as a file wants them: in host memory, contiguous. Copies only where they are not so already.
class HostTensors {
 public:
  explicit HostTensors(std::span<const step::NamedTensor> tensors);
  const std::vector<safetensors::Tensor>& views() const { return views_; }

 private:
  std::vector<at::Tensor> copies_;  // what the views point into
  std::vector<safetensors::Tensor> views_;
};

/// A copy in host memory.
at::Tensor to_torch(const safetensors::Tensor& tensor);

}  // namespace paceline::train
