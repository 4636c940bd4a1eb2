#include "paceline/central/state_message.h"

#include <ATen/ATen.h>

#include <cstring>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/safetensors.h"

namespace paceline::central {

std::string pack_state(std::span<const step::NamedTensor> state) {
  std::vector<at::Tensor> held;  // what the views point into
  std::vector<safetensors::Tensor> views;
  for (const step::NamedTensor& item : state) {
    const at::Tensor& values = held.emplace_back(item.tensor.contiguous());
    ensure(values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kLong),
           "state between processes is floats and whole numbers in host memory");
    views.push_back({.name = item.name,
                     .dtype = values.scalar_type() == at::kFloat ? safetensors::Dtype::F32 : safetensors::Dtype::I64,
                     .shape = values.sizes().vec(),
                     .data = {static_cast<const std::byte*>(values.data_ptr()), values.nbytes()}});
  }
  return safetensors::to_bytes(views);
}

std::vector<step::NamedTensor> unpack_state(std::string_view bytes, const std::string& source) {
  std::vector<step::NamedTensor> state;
  for (const safetensors::Tensor& packed : safetensors::from_bytes(std::as_bytes(std::span(bytes)), source)) {
    if (packed.dtype != safetensors::Dtype::F32 && packed.dtype != safetensors::Dtype::I64)
      throw DataError(source, fmt::format("'{}' has the dtype {}", packed.name, safetensors::name_of(packed.dtype)));
    const at::Tensor values = at::empty(packed.shape, packed.dtype == safetensors::Dtype::F32 ? at::kFloat : at::kLong);
    if (!packed.data.empty()) std::memcpy(values.data_ptr(), packed.data.data(), packed.data.size());
    state.push_back({.name = packed.name, .tensor = values, .copied = true});
  }
  return state;
}

}  // namespace paceline::central
