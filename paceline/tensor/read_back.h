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

}  // namespace paceline::tensor
