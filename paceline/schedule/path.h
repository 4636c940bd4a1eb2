// How long a collective takes, in the numbers that the costs of a machine are multiplied with (docs/algorithms.md).
//
// A formula (schedule.h) counts what the busiest rank does in all. That is what its link must carry, but not how long it takes: the root of
// a tree first receives and then sends, and the end of a chain waits until the first chunk has come through. So time goes by the critical
// path: ranks go through their rounds together, a round takes as long as the rank that has most to do in it, and the rounds add up. Links
// carry both directions at once.
#pragma once

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

struct Path {
  int rounds = 0;            // times α
  std::int64_t queued = 0;   // messages that leave, or come, behind another of the same round and rank; times the gap between messages
  std::int64_t moved = 0;    // elements; over B
  std::int64_t reduced = 0;  // elements; times g
  std::int64_t held = 0;     // elements that cannot be reduced as they come (held.h), so that they are written and read once more
  bool operator==(const Path&) const = default;
};

/// Looks at the lists of all ranks; problem.rank does not matter.
Path critical_path(const Algorithm& algorithm, Problem problem);

}  // namespace paceline::schedule
