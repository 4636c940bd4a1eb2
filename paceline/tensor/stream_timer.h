// Measures how long a GPU's stream works on something that is repeated. The host puts marks around it and continues; they are read when
// the stream has reached them.
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace paceline::tensor {

class StreamTimer {
 public:
  /// Measures nothing on the CPU.
  explicit StreamTimer(const c10::Device& device);
  ~StreamTimer();
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  bool measures() const { return state_ != nullptr; }
  /// Around the work, on LibTorch's current stream; not while that is being recorded.
  void begin();
  void end();
  /// The time of all work that has finished.
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

  /// Around the work, on LibTorch's current stream; only while that is being recorded.
  void begin();
  void end();
  /// The time of all parts whose replay has finished, for one replay each.
  double seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::tensor
