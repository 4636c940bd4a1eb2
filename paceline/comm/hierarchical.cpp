#include "paceline/comm/hierarchical.h"

#include <algorithm>

namespace paceline::comm {
Hierarchical::Hierarchical(Transport& transport, Scratch& scratch, shared::Group& host, const Operation& operation, std::int64_t sequence,
                           Tag first_tag, const schedule::Problem& problem)
    : transport_(transport),
      scratch_(scratch),
      host_(host),
      op_(operation),
      sequence_(sequence),
      first_tag_(first_tag),
      rank_(problem.rank),
      ranks_(problem.size),
      chunks_(problem.chunks) {
  for (std::int64_t first = 0; first < std::min<std::int64_t>(kLanes, chunks_); ++first) lanes_.emplace_back().chunk = first;
}

bool Hierarchical::advance() {
  using Phase = Lane::Phase;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.phase == Phase::across && lane.across->advance()) lane.phase = Phase::gather;
      const bool is_inside = lane.phase == Phase::gather || lane.phase == Phase::scatter;
      if (!is_inside || turn_ != i || !advance_inside(lane)) continue;
      turn_ = (turn_ + 1) % lanes_.size();
      moved = true;
    }
  }
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.phase == Phase::done; });
}

/// True once the lane's turn is over.
bool Hierarchical::advance_inside(Lane& lane) {
  using Phase = Lane::Phase;
  using Kind = Operation::Kind;
  if (lane.phase == Phase::gather) {
    if (!lane.inside) lane.inside.emplace(inside(lane, Kind::all_gather));
    if (!lane.inside->advance()) return false;
    lane.inside.reset();
    lane.chunk += static_cast<std::int64_t>(lanes_.size());
    lane.phase = lane.chunk < chunks_ ? Phase::scatter : Phase::done;
  }
  if (lane.phase == Phase::done) return true;
  if (!lane.inside) lane.inside.emplace(inside(lane, Kind::reduce_scatter));
  if (!lane.inside->advance()) return false;
  lane.inside.reset();
  step_out(lane);
  return true;
}

void Hierarchical::step_out(Lane& lane) {
  const int per_host = host_.size(), local = host_.rank();
  Operation across = op_;
  across.buffer = chunk(lane);
  across.buffer = across.buffer.slice(schedule::part(across.buffer.count, per_host, local));
  schedule::Steps ring = schedule::algorithm_for("ring", schedule::Collective::allreduce)
                             .make.steps({.rank = rank_ / per_host, .size = ranks_ / per_host, .count = across.buffer.count});
  const Tag tag = first_tag_ + static_cast<Tag>(lane.chunk % kLanes);
  // A mean is divided once, at the end of the exchange between hosts.
  lane.across.emplace(transport_, scratch_, std::move(ring), across, tag, op_.op == ReduceOp::mean ? ranks_ : 1, local, per_host);
  lane.phase = lane.across->advance() ? Lane::Phase::gather : Lane::Phase::across;
}

Buffer Hierarchical::chunk(const Lane& lane) const {
  return op_.buffer.slice(schedule::part(op_.buffer.count, static_cast<int>(chunks_), static_cast<int>(lane.chunk)));
}

shared::Direct Hierarchical::inside(const Lane& lane, Operation::Kind kind) const {
  Operation part = op_;
  part.kind = kind;
  part.buffer = chunk(lane);
  if (op_.op == ReduceOp::mean) part.op = ReduceOp::sum;
  return {host_, part, sequence_, {.first_rank = rank_ - host_.rank()}};
}

int Hierarchical::waits_for() const {
  // A rank that is late inside the host delays all lanes in the end.
  const Lane& inner = lanes_[turn_];
  if (inner.inside) return inner.inside->waits_for();
  for (const Lane& lane : lanes_)
    if (lane.phase == Lane::Phase::across) return lane.across->waits_for();
  return -1;
}

}  // namespace paceline::comm
