#include "paceline/strategies/per_worker.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/strategies/exchange.h"
#include "paceline/tensor/recorded.h"

namespace paceline::strategies {

at::Tensor gather_rows(comm::Communicator& comm, const at::Tensor& mine) {
  at::Tensor rows = at::empty({comm.size(), mine.numel()}, mine.options());
  rows[comm.rank()].copy_(mine);
  if (comm.size() > 1 && rows.numel() > 0) comm.run(comm::all_gather(buffer_of(rows.view(-1), 0, rows.numel())));
  return rows;
}

void take_row(comm::Communicator& comm, const at::Tensor& rows, at::Tensor& mine, const std::string& name) {
  if (rows.dim() != 2 || rows.size(1) != mine.numel())
    throw ConfigError(fmt::format("'{}' of the checkpoint is for {} values a worker, and this model has {}; resume with the same recipe",
                                  name, rows.dim() == 2 ? rows.size(1) : rows.numel(), mine.numel()));
  mine.copy_(rows.size(0) == comm.size() ? rows[comm.rank()] : rows.mean(0));
}

at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name) {
  const auto found = std::ranges::find(state, name, &NamedTensor::name);
  return found == state.end() ? at::Tensor() : found->tensor;
}

at::Tensor find_saved(std::span<const NamedTensor> state, const std::string& name) {
  at::Tensor found = saved_or_none(state, name);
  if (!found.defined())
    throw ConfigError(
        fmt::format("the checkpoint has no '{}', which this strategy needs; resume with the strategy and the compression that "
                    "wrote it",
                    name));
  return found;
}

void equalise(comm::Communicator& comm, nn::GraphModule& module) {
  if (comm.size() == 1) return;
  for (const at::Tensor& flat : {module.arena().parameters(), module.statistics().parameters()})
    if (flat.numel() > 0) comm.run(comm::broadcast(buffer_of(flat, 0, flat.numel())));
  module.refresh();
}

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

}  // namespace paceline::strategies
