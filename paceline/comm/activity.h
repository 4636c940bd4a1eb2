// An operation in flight, as a state machine: its driver calls advance() until it is done. Because no activity ever blocks, one
// thread can drive many, and sends, receives and collectives never wait for one another unnecessarily.
#pragma once

namespace paceline::comm {

class Activity {
 public:
  virtual ~Activity() = default;
  /// Makes as much progress as it can without waiting. Returns true once it is done; it is not called again after that.
  virtual bool advance() = 0;
  /// The rank that it is waiting for; −1 if none.
  virtual int waits_for() const = 0;
};

}  // namespace paceline::comm
