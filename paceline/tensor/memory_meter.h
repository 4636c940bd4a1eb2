// Counts what LibTorch's allocators, of the CPU and of CUDA, hold for one thread: a rank's activations and buffers. A large arena's
// memory does not come from them.
//
// The allocators report to listeners of the thread that allocates or frees. What other threads allocate on its behalf (OpenMP threads in a
// kernel) is not counted.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace c10 {
class DebugInfoGuard;
}

namespace paceline::tensor {

/// Bytes of free GPU memory; 0 on the CPU.
std::int64_t free_memory(const c10::Device& device);

class MemoryMeter {
 public:
  /// Counts for this thread, until it is destroyed in the same thread.
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Whether a meter already counts for this thread; a second one would hide it.
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
