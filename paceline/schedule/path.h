// How long a collective takes, as numbers to be multiplied with the costs of a machine (cost.h, docs/algorithm_choice.md).
//
// A formula (schedule.h) counts the total work of the busiest rank. That is what its link must carry, but not how long it takes: the root
// of a tree first receives and then sends, and the end of a chain waits until the first chunk has arrived. So the time is that of the
// critical path: ranks go through their rounds together, a round takes as long as its busiest rank, and the rounds add up. Links carry both
// directions at once.
#pragma once

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// What one class of links carries in a round.
struct Traffic {
  bool any = false;         // there is a message
  std::int64_t queued = 0;  // messages that a rank sends or receives after another one; times the gap between messages
  std::int64_t moved = 0;   // elements; over B
  bool operator==(const Traffic&) const = default;
};

struct Round {
  Traffic inside;   // between ranks of a host: of the busiest rank
  Traffic between;  // between hosts: `queued` of the busiest rank; `moved` of the busiest host, since its ranks share its link
  std::int64_t reduced = 0, held = 0;  // as below
};

/// The rounds of all ranks' lists; every `per_host` neighbours are a host; problem.rank does not matter.
std::vector<Round> critical_rounds(const Algorithm& algorithm, Problem problem, int per_host);

/// The same in closed form (Algorithm::rounds), where there is one and hosts have equally many ranks: some lists grow with the square of
/// the ranks. A ring of 1,024 has four million steps, and each of its rounds is like the one before.
std::optional<std::vector<Round>> closed_rounds(const Algorithm& algorithm, const Problem& problem, int per_host);

/// All rounds together, if every rank is a separate host.
struct Path {
  int rounds = 0;            // times α
  std::int64_t queued = 0;   // messages; times the gap
  std::int64_t moved = 0;    // elements; over B
  std::int64_t reduced = 0;  // elements; times g
  std::int64_t held = 0;     // elements that cannot be reduced as they arrive (held.h), and are written and read once more
  bool operator==(const Path&) const = default;
};
Path critical_path(const Algorithm& algorithm, const Problem& problem);

}  // namespace paceline::schedule
