// Executes a schedule: one rank's list of steps as messages of a transport.
#pragma once

#include "paceline/comm/activity.h"
#include "paceline/comm/operation.h"
#include "paceline/comm/scratch.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {

class StepRunner final : public Activity {
 public:
  /// `base` is the transport's number for the schedule's rank 0, `stride` the distance to the next: a schedule may run on every k-th rank.
  /// `divisor` completes a mean. Messages carry `tag`, which no other operation in flight may use.
  StepRunner(Transport& transport, Scratch& scratch, schedule::Steps steps, const Operation& operation, Tag tag, int divisor, int base = 0,
             int stride = 1);

  bool advance() override;
  int waits_for() const override;

 private:
  struct Message {
    const schedule::Step* step;
    Scratch::Piece held;  // outlives the request that fills it
    std::unique_ptr<Transport::Request> request;
    bool done = false;
  };

  void post_round();
  void end_round();
  void copy_own(schedule::Range range);
  int name_of_peer(const schedule::Step& step) const { return base_ + step.peer * stride_; }

  Transport& transport_;
  Scratch& scratch_;
  schedule::Steps steps_;
  Operation op_;
  Tag tag_;
  int divisor_, base_, stride_;
  std::size_t next_ = 0;
  std::vector<Message> round_;
  bool in_flight_ = false;
};

}  // namespace paceline::comm
