// The communication of layers that ranks share: sums of partial results; sequences that are gathered or scattered by positions, and batches
// by samples. Sums over the axis, and gathered tensors, are the same, bit for bit, on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/base/clock.h"
#include "paceline/comm/communicator.h"
#include "paceline/nn/op.h"
#include "paceline/nn/traffic.h"
#include "paceline/tensor/stream_timer.h"

namespace paceline::nn {

using Shares = std::vector<Share>;  // of a batch, by rank

class TensorAxis {
 public:
  /// Both must outlive it. `clock` measures the waits in traffic(); null: they are not measured. The waits of a recorded pass
  /// are measured by the GPU, in the first replay.
  explicit TensorAxis(comm::Communicator& comm, const Clock* clock = nullptr) : comm_(comm), clock_(clock) {}

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }

  /// The sum over all ranks; in place if the tensor is contiguous.
  at::Tensor sum(const at::Tensor& values) const { return reduce(values, comm::ReduceOp::sum); }
  at::Tensor max(const at::Tensor& values) const { return reduce(values, comm::ReduceOp::max); }
  at::Tensor min(const at::Tensor& values) const { return reduce(values, comm::ReduceOp::min); }

  /// [batch, T, d] of all ranks' [batch, T/size, d].
  at::Tensor gather_positions(const at::Tensor& part) const;
  /// This rank's [batch, T/size, d] of the sum of all ranks' [batch, T, d].
  at::Tensor scatter_positions(const at::Tensor& partial) const;

  /// [batch, …] of all ranks' [samples, …], which may differ in number.
  at::Tensor gather_samples(const at::Tensor& part, const Shares& shares) const;
  /// This rank's [samples, …] of the sum of all ranks' [batch, …], which is lost.
  at::Tensor scatter_samples(const at::Tensor& partial, const Shares& shares) const;
  /// This rank's channels of all samples, [batch, …, d/size], of all ranks' [samples, …, d].
  at::Tensor to_channels(const at::Tensor& samples, const Shares& shares) const;
  /// This rank's [samples, …, d] of all ranks' [batch, …, d/size].
  at::Tensor to_samples(const at::Tensor& channels, const Shares& shares) const;

  /// Sends part i of the elements to rank i; returns the ranks' parts for this one, in their order.
  at::Tensor exchange(const at::Tensor& parts) const;

  Traffic traffic() const;

 private:
  at::Tensor reduce(const at::Tensor& values, comm::ReduceOp op) const;
  std::int64_t own(const Shares& shares) const { return shares[static_cast<std::size_t>(rank())].samples; }
  /// `rounds`: how often a rank sends its share of the other ranks' parts: twice in an allreduce, otherwise once.
  void run(const comm::Operation& operation, const at::Tensor& values, int rounds) const;

  Nanoseconds now() const { return clock_ ? clock_->now() : Nanoseconds(0); }

  comm::Communicator& comm_;
  const Clock* clock_;
  mutable Traffic traffic_;  // of the thread that computes
  mutable tensor::RecordedTimer recorded_;
};

}  // namespace paceline::nn
