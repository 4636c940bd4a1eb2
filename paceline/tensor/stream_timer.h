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

/// The same for parts of a run that is being recorded (recorded.h): how long they take is measured in its first replay.
class RecordedTimer {
 public:
  RecordedTimer();
  ~RecordedTimer();
  RecordedTimer(const RecordedTimer&) = delete;
  RecordedTimer& operator=(const RecordedTimer&) = delete;

  /// Around the work, on LibTorch's present stream; only while that is recorded.
  void begin();
  void end();
  /// Of all parts whose replay is over, one replay each.
  double seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::tensor
