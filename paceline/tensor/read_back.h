// Copies a few numbers from the device to the host: the copy is enqueued after the work that computes them, and reading them waits only for
// that copy, not for work that was enqueued later.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace paceline::tensor {

class ReadBack {
 public:
  ReadBack();
  ~ReadBack();
  ReadBack(ReadBack&&) noexcept;
  ReadBack& operator=(ReadBack&&) noexcept;

  void start(const at::Tensor& values);
  /// The values of the last start(), as a host tensor.
  const at::Tensor& wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A point in a device's work queue that the host can wait for. On the CPU, nothing is queued.
class QueueMark {
 public:
  QueueMark();
  ~QueueMark();
  QueueMark(QueueMark&&) noexcept;
  QueueMark& operator=(QueueMark&&) noexcept;

  /// After the work that was enqueued on the device's current stream so far.
  void set(const c10::Device& device);
  void wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null on the CPU
};

}  // namespace paceline::tensor
