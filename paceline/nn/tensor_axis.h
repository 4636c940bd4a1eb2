// What layers that ranks share ask of one another: sums of partial results, and sequences that are put together or dealt out by positions.
// Every result is the same, bit by bit, on all ranks of the axis.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/nn/traffic.h"

namespace paceline::nn {

class TensorAxis {
 public:
  /// `comm` outlives it.
  explicit TensorAxis(comm::Communicator& comm) : comm_(comm) {}

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }

  /// Over all ranks; in place where the elements lie side by side.
  at::Tensor sum(const at::Tensor& values) const { return reduce(values, comm::ReduceOp::sum); }
  at::Tensor max(const at::Tensor& values) const { return reduce(values, comm::ReduceOp::max); }
  at::Tensor min(const at::Tensor& values) const { return reduce(values, comm::ReduceOp::min); }

  /// [batch, T, d] of all ranks' [batch, T/size, d].
  at::Tensor gather_positions(const at::Tensor& part) const;
  /// This rank's [batch, T/size, d] of the sum of all ranks' [batch, T, d].
  at::Tensor scatter_positions(const at::Tensor& partial) const;

  const Traffic& traffic() const { return traffic_; }

 private:
  at::Tensor reduce(const at::Tensor& values, comm::ReduceOp op) const;
  /// `rounds`: how often a rank sends its share of the other ranks' parts: once in a reduce-scatter or all-gather, twice in an allreduce.
  void run(const comm::Operation& operation, const at::Tensor& values, int rounds) const;

  comm::Communicator& comm_;
  mutable Traffic traffic_;  // of the thread that computes
};

}  // namespace paceline::nn
