// How long a collective takes, in the numbers that the costs of a machine are multiplied with (cost.h, docs/algorithms.md).
//
// A formula (schedule.h) counts what the busiest rank does in all. That is what its link must carry, but not how long it takes: the root of
// a tree first receives and then sends, and the end of a chain waits until the first chunk has come through. So time goes by the critical
// path: ranks go through their rounds together, a round takes as long as the rank that has most to do in it, and the rounds add up. Links
// carry both directions at once.
#pragma once

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// What one class of links carries in a round.
struct Traffic {
  bool any = false;         // a message goes this way
  std::int64_t queued = 0;  // messages that leave, or come, behind another of the same rank; times the gap between messages
  std::int64_t moved = 0;   // elements; over B
  bool operator==(const Traffic&) const = default;
};

struct Round {
  Traffic inside;   // between ranks of a host: of the rank that has most
  Traffic between;  // between hosts: queued of the rank that has most; moved of the host that has most, since its ranks share its link
  std::int64_t reduced = 0, held = 0;  // as below
};

/// The rounds of all ranks' lists, where each `per_host` neighbours are a host; problem.rank does not matter.
std::vector<Round> critical_rounds(const Algorithm& algorithm, Problem problem, int per_host);

/// All rounds together, where every rank is a host of its own.
struct Path {
  int rounds = 0;            // times α
  std::int64_t queued = 0;   // messages; times the gap
  std::int64_t moved = 0;    // elements; over B
  std::int64_t reduced = 0;  // elements; times g
  std::int64_t held = 0;     // elements that cannot be reduced as they come (held.h), so that they are written and read once more
  bool operator==(const Path&) const = default;
};
Path critical_path(const Algorithm& algorithm, const Problem& problem);

}  // namespace paceline::schedule
