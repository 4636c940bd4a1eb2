// Counts what LibTorch's allocators, of the CPU and of CUDA, hold for one thread: a rank's activations and buffers. A large arena's
// memory does not come from them.
//
// The allocators report to listeners of the thread that allocates or frees. What other threads allocate on its behalf (OpenMP threads in a
// kernel) is not counted.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

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

  std::int64_t now() const;      ///< bytes since it began, less what was freed
  std::int64_t peak() const;     ///< the most since then or since reset_peaks()
  std::int64_t staying() const;  ///< of now(), what is no TravellingBytes
  std::int64_t staying_peak() const;
  std::int64_t travelling_peak() const;
  void reset_peaks();

 private:
  friend class TravellingBytes;
  class Reporter;
  struct Travelling {
    std::atomic<std::int64_t> now{0}, peak{0};
  };
  std::shared_ptr<Reporter> reporter_;
  std::unique_ptr<c10::DebugInfoGuard> guard_;
};

/// Memory for what goes to other ranks or comes from them, whichever allocator it is from: counted as long as this lives, by the meter of
/// the thread that makes it, if there is one.
class TravellingBytes {
 public:
  TravellingBytes() = default;
  explicit TravellingBytes(std::int64_t bytes);
  TravellingBytes(TravellingBytes&& other) noexcept { *this = std::move(other); }
  TravellingBytes& operator=(TravellingBytes&& other) noexcept;
  ~TravellingBytes();

  /// These are some more.
  void add(std::int64_t bytes);

 private:
  std::shared_ptr<MemoryMeter::Travelling> counter_;
  std::int64_t bytes_ = 0;
};

}  // namespace paceline::tensor
