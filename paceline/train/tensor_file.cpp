#include "paceline/train/tensor_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "paceline/base/error.h"

namespace paceline::train {
namespace {

using safetensors::Dtype;

constexpr std::pair<at::ScalarType, Dtype> kTypes[] = {
    {at::kDouble, Dtype::F64}, {at::kFloat, Dtype::F32}, {at::kHalf, Dtype::F16}, {at::kBFloat16, Dtype::BF16}, {at::kLong, Dtype::I64},
    {at::kInt, Dtype::I32},    {at::kShort, Dtype::I16}, {at::kChar, Dtype::I8},  {at::kByte, Dtype::U8},       {at::kBool, Dtype::BOOL},
};

}  // namespace

HostTensors::HostTensors(std::span<const step::NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) {
    copies_.push_back(tensor.detach().cpu().contiguous());
    const at::Tensor& host = copies_.back();
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.first == host.scalar_type(); });
    ensure(type != std::end(kTypes), "a checkpoint holds only types that safetensors has");
    views_.push_back({name, type->second, host.sizes().vec(), {static_cast<const std::byte*>(host.data_ptr()), host.nbytes()}});
  }
}

at::Tensor to_torch(const safetensors::Tensor& tensor) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.second == tensor.dtype; });
  at::Tensor out = at::empty(tensor.shape, type->first);
  if (!tensor.data.empty()) std::memcpy(out.data_ptr(), tensor.data.data(), tensor.data.size());
  return out;
}

}  // namespace paceline::train
