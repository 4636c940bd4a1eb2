// Between LibTorch's tensors and those of a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/safetensors.h"
#include "paceline/step/strategy.h"

namespace paceline::train {

/// The name under which a tensor, or a box of it, stands in a file: "optim.momentum.fc1.weight[0:16]", "…[:,4:8]". Dimensions at the end
/// that are all there are left out.
std::string stored_name(const step::NamedTensor& item);

/// Tensors as a file wants them: in host memory, contiguous. Copies only where they are not so already, or where `always` says so.
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

/// Without a copy: pages of the file are read when they are looked at. Not to be written to. The file stays open as long as the tensor.
at::Tensor map_tensor(const std::shared_ptr<const safetensors::File>& file, const safetensors::Tensor& tensor);

}  // namespace paceline::train
