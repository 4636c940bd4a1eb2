// Where the memory of tensors that are exchanged comes from, and what an exchange of it sends. A tensor itself is a comm::Buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// Memory from the engine in which its collectives are fastest; on a GPU, LibTorch's.
tensor::Allocate allocate_from(comm::Communicator& comm);

/// Payload that each of `workers` sends in a good allreduce of this many bytes.
inline std::int64_t allreduce_bytes(std::int64_t bytes, int workers) { return 2 * bytes * (workers - 1) / workers; }

}  // namespace paceline::data_parallel
