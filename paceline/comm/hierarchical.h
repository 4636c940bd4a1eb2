// The `hierarchical` schedule of an allreduce over hosts whose ranks share memory (schedule/hierarchical.cpp), without its messages inside
// hosts: a reduce-scatter inside each host, a ring of the ranks that have the same place in their hosts, each with its slice, and an
// all-gather inside.
//
// Chunks travel along a few lanes, chunk c along lane c mod lanes, one after the other in each. Inside a host there is one collective at a
// time, and all its ranks must begin them in the same order: the lanes take turns, and in its turn a lane gathers the chunk that arrived
// from other hosts and reduces its next one.
//
// Invariant: the chunks are the schedule's. Element i of a chunk is combined inside its host in the order owner, owner + 1, …
// (shared/direct.h), then across hosts in the order of the ring (schedule/passes/ring.h); owner and ring block are parts of the chunk. So
// the bits are the schedule's.
#pragma once

#include <deque>
#include <optional>

#include "paceline/comm/shared/direct.h"
#include "paceline/comm/step_runner.h"

namespace paceline::comm {

class Hierarchical final : public Activity {
 public:
  static constexpr int kLanes = 3;

  /// Messages of lane i carry first_tag + i. `problem` has this rank's number among all ranks, and the chunks.
  Hierarchical(Transport& transport, Scratch& scratch, shared::Group& host, const Operation& operation, std::int64_t sequence,
               Tag first_tag, const schedule::Problem& problem);

  bool advance() override;
  int waits_for() const override;

 private:
  struct Lane {
    enum class Phase { gather, scatter, across, done };
    Phase phase = Phase::scatter;
    std::int64_t chunk = 0;
    std::optional<shared::Direct> inside;
    std::optional<StepRunner> across;
  };

  bool advance_inside(Lane& lane);
  void step_out(Lane& lane);
  Buffer chunk(const Lane& lane) const;
  shared::Direct inside(const Lane& lane, Operation::Kind kind) const;

  Transport& transport_;
  Scratch& scratch_;
  shared::Group& host_;
  const Operation op_;
  const std::int64_t sequence_;
  const Tag first_tag_;
  const int rank_, ranks_;
  std::int64_t chunks_;
  std::deque<Lane> lanes_;
  std::size_t turn_ = 0;  // the lane that may use the host's collectives
};

}  // namespace paceline::comm
