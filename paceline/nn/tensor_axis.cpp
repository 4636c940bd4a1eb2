#include "paceline/nn/tensor_axis.h"

#include <ATen/ATen.h>

#include "paceline/base/clock.h"

namespace paceline::nn {

void TensorAxis::run(const comm::Operation& operation, const at::Tensor& values, int rounds) const {
  const SteadyClock clock;
  const Nanoseconds began = clock.now();
  comm_.run(operation);
  const double spent = seconds(clock.now() - began);
  traffic_ += {spent, spent, 0, rounds * static_cast<std::int64_t>(values.nbytes()) * (size() - 1) / size()};
}

at::Tensor TensorAxis::reduce(const at::Tensor& values, comm::ReduceOp op) const {
  const bool channels_last = values.dim() == 4 && !values.is_contiguous() && values.is_contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor dense = channels_last ? values.permute({0, 2, 3, 1}) : values.contiguous();
  run(comm::allreduce(dense, {.op = op}), dense, 2);
  return channels_last ? values : dense;
}

// The ranks' parts of a buffer lie one behind the other, so the positions of a rank come first: [size, batch, T/size, d].
at::Tensor TensorAxis::gather_positions(const at::Tensor& part) const {
  const std::int64_t batch = part.size(0), positions = part.size(1), features = part.size(2);
  at::Tensor parts = at::empty({size(), batch, positions, features}, part.options());
  parts[rank()].copy_(part);
  run(comm::all_gather(parts), parts, 1);
  return parts.permute({1, 0, 2, 3}).reshape({batch, size() * positions, features});
}

at::Tensor TensorAxis::scatter_positions(const at::Tensor& partial) const {
  const std::int64_t batch = partial.size(0), positions = partial.size(1) / size(), features = partial.size(2);
  const at::Tensor parts = partial.reshape({batch, size(), positions, features}).permute({1, 0, 2, 3}).contiguous();
  run(comm::reduce_scatter(parts), parts, 1);
  return parts[rank()];
}

}  // namespace paceline::nn
