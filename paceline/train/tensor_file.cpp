#include "paceline/train/tensor_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::train {
namespace {

using safetensors::Dtype;

constexpr std::pair<at::ScalarType, Dtype> kTypes[] = {
    {at::kDouble, Dtype::F64}, {at::kFloat, Dtype::F32}, {at::kHalf, Dtype::F16}, {at::kBFloat16, Dtype::BF16}, {at::kLong, Dtype::I64},
    {at::kInt, Dtype::I32},    {at::kShort, Dtype::I16}, {at::kChar, Dtype::I8},  {at::kByte, Dtype::U8},       {at::kBool, Dtype::BOOL},
};

}  // namespace

std::string stored_name(const step::NamedTensor& item) {
  if (!item.box) return item.name;
  std::string ranges, all;  // up to the last partial dimension; complete ones after it
  for (std::size_t dim = 0; dim < item.box->whole.size(); ++dim) {
    const std::int64_t first = item.box->first[dim], count = item.tensor.size(static_cast<std::int64_t>(dim));
    const std::string comma = dim > 0 ? "," : "";
    if (count == item.box->whole[dim]) all += comma + ":";
    else ranges += std::exchange(all, "") + fmt::format("{}{}:{}", comma, first, first + count);
  }
  return fmt::format("{}[{}]", item.name, ranges);
}

HostTensors::HostTensors(std::span<const step::NamedTensor> tensors, bool always) {
  for (const step::NamedTensor& item : tensors) {
    copies_.push_back(item.tensor.detach().cpu().contiguous());
    if (always && !item.copied && copies_.back().is_alias_of(item.tensor)) copies_.back() = copies_.back().clone();
    const at::Tensor& host = copies_.back();
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.first == host.scalar_type(); });
    ensure(type != std::end(kTypes), "a checkpoint holds only types that safetensors has");
    views_.push_back(
        {stored_name(item), type->second, host.sizes().vec(), {static_cast<const std::byte*>(host.data_ptr()), host.nbytes()}});
  }
}

at::Tensor map_tensor(const std::shared_ptr<const safetensors::File>& file, const safetensors::Tensor& tensor) {
  const auto* data = tensor.data.data();
  if (tensor.data.empty() || reinterpret_cast<std::uintptr_t>(data) % safetensors::size_of(tensor.dtype) != 0) return to_torch(tensor);
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.second == tensor.dtype; });
  return at::from_blob(
      const_cast<std::byte*>(data), tensor.shape, [file](void*) {}, at::TensorOptions().dtype(type->first));
}

at::Tensor to_torch(const safetensors::Tensor& tensor) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& row) { return row.second == tensor.dtype; });
  at::Tensor out = at::empty(tensor.shape, type->first);
  if (!tensor.data.empty()) std::memcpy(out.data_ptr(), tensor.data.data(), tensor.data.size());
  return out;
}

}  // namespace paceline::train
