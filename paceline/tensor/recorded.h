// A piece of work that is asked for again and again with the same tensors: a training step.
//
// On a GPU the first runs are made as they come (LibTorch and cuDNN set themselves up), then one is recorded in a CUDA graph, and from then
// on a run is a single launch: the hundreds of small launches of a step cost more than many of its kernels. On the CPU every run is a plain
// call.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace paceline::tensor {

class Recorded {
 public:
  /// `record` false: never record, always call.
  Recorded(const c10::Device& device, bool record);
  ~Recorded();
  Recorded(Recorded&&) noexcept;
  Recorded& operator=(Recorded&&) noexcept;

  /// Does `work`. Once recorded, the argument is not called again: it must do the same on the same memory every time, and whatever changes
  /// from run to run (a learning rate) must lie in device memory.
  void run(const std::function<void()>& work);
  /// Forgets the recording: the next runs are plain again. To be called when shapes or memory change.
  void forget();

 private:
  struct State;
  c10::Device device_;
  [[maybe_unused]] bool record_;
  int plain_runs_ = 0;
  std::unique_ptr<State> state_;
};

/// While it lives, work for `device` goes to a stream of its own (CUDA graphs cannot be recorded on the default one). Nothing on the CPU.
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

/// The stream that LibTorch uses now, as a cudaStream_t; null on the CPU.
void* current_stream(const c10::Device& device);

}  // namespace paceline::tensor
