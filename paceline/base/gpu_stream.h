// LibTorch's current stream, for code that must order its own work after LibTorch's but does not depend on LibTorch.
#pragma once

namespace paceline {

/// The stream of this GPU and the calling thread, as a cudaStream_t; null without CUDA. Defined in room `tensor` (tensor/recorded.cpp),
/// which every program with tensors links.
void* current_gpu_stream(int device);

}  // namespace paceline
