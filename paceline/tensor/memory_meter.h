// Counts what LibTorch's allocators, of the CPU and of CUDA, hold for one thread: of a rank, its activations and buffers. The arena's
// memory does not come from them where it is large.
//
// The allocators report to whoever asks for it in the thread that allocates or frees. What other threads allocate in its place (OpenMP's in
// a kernel) is not seen.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace c10 {
class DebugInfoGuard;
}

namespace paceline::tensor {

/// Bytes of a GPU's memory that nobody holds; 0 on the CPU.
std::int64_t free_memory(const c10::Device& device);

class MemoryMeter {
 public:
  /// Counts for this thread, until it is destroyed in the same thread.
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Whether one counts for this thread already; a second one would hide it.
  static bool counts_here();

  std::int64_t now() const;   ///< bytes since it began, less what was freed
  std::int64_t peak() const;  ///< the most since then or since reset_peak()
  void reset_peak();

 private:
  class Reporter;
  std::shared_ptr<Reporter> reporter_;
  std::unique_ptr<c10::DebugInfoGuard> guard_;
};

}  // namespace paceline::tensor
