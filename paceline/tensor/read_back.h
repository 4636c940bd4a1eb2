// A few numbers on their way from the device to the host: the copy is enqueued behind what computes them, and whoever reads them waits for
// that copy alone, not for work that was enqueued later.
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
  /// The values of the last start(), as a tensor of the host.
  const at::Tensor& wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A place in a device's queue of work that the host can wait for. On the CPU nothing is queued.
class QueueMark {
 public:
  QueueMark();
  ~QueueMark();
  QueueMark(QueueMark&&) noexcept;
  QueueMark& operator=(QueueMark&&) noexcept;

  /// Behind what the current stream of the device has been given so far.
  void set(const c10::Device& device);
  void wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null on the CPU
};

}  // namespace paceline::tensor
