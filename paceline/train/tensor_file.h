// Conversions between LibTorch tensors and those of a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/safetensors.h"
#include "paceline/step/strategy.h"

namespace paceline::train {

/// The name of a tensor, or of a box of it, in a file: "optim.momentum.fc1.weight[0:16]", "…[:,4:8]". Complete trailing dimensions are left
/// out.
std::string stored_name(const step::NamedTensor& item);

/// Tensors as a file needs them: contiguous, in host memory. Copies only those that are not, or, if `always` is set, all
/// that others may write to.
class HostTensors {
 public:
  explicit HostTensors(std::span<const step::NamedTensor> tensors, bool always = false);
  const std::vector<safetensors::Tensor>& views() const { return views_; }

 private:
  std::vector<at::Tensor> copies_;  // what the views point into
  std::vector<safetensors::Tensor> views_;
};

/// A copy in host memory.
at::Tensor to_torch(const safetensors::Tensor& tensor);

/// A read-only view without a copy: pages of the file are read on access. The file stays open as long as the tensor lives.
at::Tensor map_tensor(const std::shared_ptr<const safetensors::File>& file, const safetensors::Tensor& tensor);

}  // namespace paceline::train
