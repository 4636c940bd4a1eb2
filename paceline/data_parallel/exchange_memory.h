// Where tensors that are exchanged are allocated, and how many bytes their exchange sends. A tensor itself is a comm::Buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// Allocates where the engine's collectives are fastest; on a GPU, through LibTorch.
tensor::Allocate allocate_from(comm::Communicator& comm);

/// Payload that each of `workers` sends in a bandwidth-optimal allreduce of this many bytes.
inline std::int64_t allreduce_bytes(std::int64_t bytes, int workers) { return 2 * bytes * (workers - 1) / workers; }

}  // namespace paceline::data_parallel
