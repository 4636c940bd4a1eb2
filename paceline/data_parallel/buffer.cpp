#include "paceline/data_parallel/buffer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/tensor/recorded.h"

namespace paceline::data_parallel {

tensor::Allocate allocate_from(comm::Communicator& comm) {
  return [&comm](std::int64_t elements, const at::TensorOptions& options) {
    if (!options.device().is_cpu() || comm.size() == 1 || comm::engine_of(comm.engine()).on_gpu)
      return tensor::allocate_pages(elements, options);
    const comm::Memory memory = comm.allocate(std::max<std::int64_t>(elements, 1) * static_cast<std::int64_t>(options.dtype().itemsize()));
    return at::from_blob(
        memory.get(), {elements}, [kept = std::make_shared<comm::Memory>(memory)](void*) { kept->reset(); }, options);
  };
}

comm::Buffer buffer_of(const at::Tensor& flat, std::int64_t begin, std::int64_t end) {
  const auto dtype = [&] {
    switch (flat.scalar_type()) {
      case at::kFloat: return comm::DType::f32;
      case at::kDouble: return comm::DType::f64;
      case at::kLong: return comm::DType::i64;
      case at::kByte: return comm::DType::u8;
      case at::kHalf: return comm::DType::f16;
      case at::kBFloat16: return comm::DType::bf16;
      default: throw InternalError(fmt::format("no collective for tensors of type {}", c10::toString(flat.scalar_type())));
    }
  }();
  auto* data = static_cast<std::byte*>(flat.data_ptr()) + begin * comm::size_of(dtype);
  if (flat.is_cuda()) return {data, end - begin, dtype, tensor::current_stream(flat.device())};
  return {data, end - begin, dtype};
}

}  // namespace paceline::data_parallel
