// How long a GPU's stream was at something that was asked for again and again. The host puts marks around it and goes on; what they say
// is read when the stream has come to them.
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace paceline::tensor {

class StreamTimer {
 public:
  /// On the CPU it measures nothing.
  explicit StreamTimer(const c10::Device& device);
  ~StreamTimer();
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  bool measures() const { return state_ != nullptr; }
  /// Around the work, on LibTorch's present stream; not while that is recorded.
  void begin();
  void end();
  /// Of all work that is over.
  double seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::tensor
