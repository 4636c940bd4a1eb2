// An operation in flight, as a state machine: whoever drives it calls advance() until it is done. Because no activity ever blocks, one
// thread can drive many, and sends, receives and collectives never wait for one another without need.
#pragma once

namespace paceline::comm {

class Activity {
 public:
  virtual ~Activity() = default;
  /// Goes on as far as it can without waiting. True once it is done; it is not called again then.
  virtual bool advance() = 0;
  /// The rank that it waits for; −1 where it waits for nobody.
  virtual int waits_for() const = 0;
};

}  // namespace paceline::comm
