// The stream that LibTorch puts its work on, for code that must order its own work behind it and does without LibTorch itself.
#pragma once

namespace paceline {

/// Of this GPU and the calling thread, as a cudaStream_t; null without CUDA. Room `tensor` defines it (tensor/recorded.cpp): whoever has a
/// tensor links that.
void* current_gpu_stream(int device);

}  // namespace paceline
