// Tensors as the communicators see them: their memory, and where it comes from.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/comm/communicator.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// The memory of a tensor's range, for a collective; on a GPU on LibTorch's present stream.
comm::Buffer buffer_of(const at::Tensor& flat, std::int64_t begin, std::int64_t end);

/// Memory from the engine in which its collectives are fastest; on a GPU, LibTorch's.
tensor::Allocate allocate_from(comm::Communicator& comm);

/// Payload that each of `workers` sends in a good allreduce of so many bytes.
inline std::int64_t allreduce_bytes(std::int64_t bytes, int workers) { return 2 * bytes * (workers - 1) / workers; }

}  // namespace paceline::data_parallel
