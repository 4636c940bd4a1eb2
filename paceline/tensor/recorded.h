// Work that is repeated with the same tensors: a training step.
//
// On a GPU, the first runs are plain (LibTorch and cuDNN set themselves up), then one is recorded as a CUDA graph, and from then on a run
// is a single launch: the hundreds of small launches of a step cost more than many of its kernels. On the CPU, every run is a plain call.
//
// Ranks that communicate in the middle of the work must be threads of one process, and record it together, in one graph: a stream can wait
// for another within a graph, but not across graphs. The first rank launches the graph for all.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace paceline::tensor {

/// The threads that record together.
struct Company {
  int rank = 0, size = 1;
  /// Exchanges one word per rank; returns all of them, by rank. All ranks must call it; it throws after a timeout.
  std::function<std::vector<std::int64_t>(std::int64_t word)> tell = {};
};

class Recorded {
 public:
  enum class Run : std::uint8_t { called, recorded, replayed };

  /// `record` false: never record, always call.
  Recorded(const c10::Device& device, bool record, Company company = {});
  ~Recorded();
  Recorded(Recorded&&) noexcept;
  Recorded& operator=(Recorded&&) noexcept;

  /// Does `work`. Once recorded, the argument is not called again: it must do the same on the same memory every time, and what changes
  /// from run to run (a learning rate) must be in device memory. If ranks record together, all must call it equally often.
  Run run(const std::function<void()>& work);
  /// Discards the recording: the next runs are plain again. Call it when shapes or memory change; the other ranks follow in their next run.
  void forget();

 private:
  struct State;
  void agree();
  void record(const std::function<void()>& work);
  void replay();
  void meet() const;
  bool leads() const { return company_.rank == 0; }

  c10::Device device_;
  [[maybe_unused]] bool record_;
  Company company_;
  int plain_runs_ = 0;
  std::unique_ptr<State> state_;
};

/// While this lock is held, no thread records. For code that waits for a whole device, which would invalidate a recording in another
/// thread.
[[nodiscard]] std::unique_lock<std::mutex> without_recordings();

/// For its scope, this thread's work for `device` goes to a stream that no other thread uses, since CUDA graphs cannot be recorded on the
/// default stream. No effect on the CPU.
class OwnStream {
 public:
  explicit OwnStream(const c10::Device& device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether work that this thread puts on LibTorch's current stream is recorded rather than executed.
bool is_recording(const c10::Device& device);

/// LibTorch's current stream, as a cudaStream_t; null on the CPU.
void* current_stream(const c10::Device& device);

}  // namespace paceline::tensor
