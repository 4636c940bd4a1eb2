#include "paceline/nn/tensor_axis.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/tensor/recorded.h"

namespace paceline::nn {
namespace {

std::int64_t largest(const Shares& shares) { return std::ranges::max(shares, {}, &Share::samples).samples; }

bool even(const Shares& shares) {
  return std::ranges::all_of(shares, [&](const Share& share) { return share.samples == shares.front().samples; });
}

// Collectives have parts of equal size, so shares are padded to the largest: [batch, …] is sent as [ranks, largest, …].
at::Tensor filled_up(const at::Tensor& batch, const Shares& shares) {
  auto shape = batch.sizes().vec();
  shape[0] = largest(shares);
  shape.insert(shape.begin(), std::ssize(shares));
  if (even(shares)) return batch.contiguous().view(shape);
  at::Tensor parts = at::zeros(shape, batch.options());
  std::int64_t begin = 0;
  for (std::int64_t rank = 0; rank < std::ssize(shares); ++rank) {
    const std::int64_t samples = shares[static_cast<std::size_t>(rank)].samples;
    parts[rank].narrow(0, 0, samples).copy_(batch.narrow(0, begin, samples));
    begin += samples;
  }
  return parts;
}

at::Tensor put_together(const at::Tensor& parts, const Shares& shares) {
  if (even(shares)) return parts.flatten(0, 1);
  std::vector<at::Tensor> rows;
  for (std::int64_t rank = 0; rank < std::ssize(shares); ++rank)
    rows.push_back(parts[rank].narrow(0, 0, shares[static_cast<std::size_t>(rank)].samples));
  return at::cat(rows);
}

}  // namespace

void TensorAxis::run(const comm::Operation& operation, const at::Tensor& values, int rounds) const {
  const bool recording = tensor::is_recording(values.device());
  const Nanoseconds began = now();
  if (recording) recorded_.begin();
  comm_.run(operation);
  if (recording) recorded_.end();
  const double spent = recording ? 0 : seconds(now() - began);
  traffic_ += {spent, spent, 0, rounds * static_cast<std::int64_t>(values.nbytes()) * (size() - 1) / size()};
}

Traffic TensorAxis::traffic() const {
  Traffic traffic = traffic_;
  const double recorded = clock_ ? recorded_.seconds() : 0;
  return traffic += {.waited_s = recorded, .busy_s = recorded};
}

at::Tensor TensorAxis::reduce(const at::Tensor& values, comm::ReduceOp op) const {
  const bool channels_last = values.dim() == 4 && !values.is_contiguous() && values.is_contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor dense = channels_last ? values.permute({0, 2, 3, 1}) : values.contiguous();
  run(comm::allreduce(dense, {.op = op}), dense, 2);
  return channels_last ? values : dense;
}

at::Tensor TensorAxis::exchange(const at::Tensor& parts) const {
  const at::Tensor given = parts.contiguous(), got = at::empty_like(given);
  run(comm::all_to_all(given, got), given, 1);
  return got;
}

// The ranks' parts of a buffer lie one after the other, so the positions of a rank come first: [size, batch, T/size, d].
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
  return parts[rank()].clone();  // a view would keep all positions
}

at::Tensor TensorAxis::gather_samples(const at::Tensor& part, const Shares& shares) const {
  auto shape = part.sizes().vec();
  shape[0] = largest(shares);
  shape.insert(shape.begin(), size());
  at::Tensor parts = at::empty(shape, part.options());
  parts[rank()].narrow(0, 0, own(shares)).copy_(part);
  if (own(shares) < largest(shares)) parts[rank()].narrow(0, own(shares), largest(shares) - own(shares)).zero_();
  run(comm::all_gather(parts), parts, 1);
  return put_together(parts, shares);
}

at::Tensor TensorAxis::scatter_samples(const at::Tensor& partial, const Shares& shares) const {
  const at::Tensor parts = filled_up(partial, shares);
  run(comm::reduce_scatter(parts), parts, 1);
  return parts[rank()].narrow(0, 0, own(shares)).clone();  // a view would keep the whole batch
}

at::Tensor TensorAxis::to_channels(const at::Tensor& samples, const Shares& shares) const {
  const std::int64_t missing = largest(shares) - samples.size(0);
  at::Tensor given = samples.unflatten(-1, {size(), samples.size(-1) / size()}).movedim(-2, 0);
  if (missing > 0) {
    auto shape = given.sizes().vec();
    shape[1] = missing;
    given = at::cat({given, at::zeros(shape, given.options())}, 1);
  }
  given = given.contiguous();
  const at::Tensor parts = at::empty_like(given);
  run(comm::all_to_all(given, parts), parts, 1);
  return put_together(parts, shares);
}

at::Tensor TensorAxis::to_samples(const at::Tensor& channels, const Shares& shares) const {
  const at::Tensor given = filled_up(channels, shares), parts = at::empty_like(given);
  run(comm::all_to_all(given, parts), parts, 1);
  return parts.narrow(1, 0, own(shares)).movedim(0, -2).flatten(-2, -1).contiguous();
}

}  // namespace paceline::nn
