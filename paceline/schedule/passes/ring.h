// A pass around a ring: reduce-scatter, all-gather, or both in a row (van de Geijn's bucket algorithms; Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", 2009).
//
// In step t index i sends block i−1−t to i+1 while block i−2−t comes from i−1. For t < p−1, what arrives is reduced, and block i is the
// last to be completed; from then on, what arrives is complete and is stored. One rule serves both halves, because block i−1−t of step
// t = p−1 is block i.
#pragma once

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {

/// `collective` is reduce_scatter, all_gather, allreduce or barrier. Returns the round after the last. A block is one message: the
/// transports may divide it, and reduce what has arrived while the rest is still in flight.
int ring_pass(StepList& list, const Team& team, const Blocks& blocks, Collective collective, int round);

/// p − 1 rounds, each with a p-th of n, for each half.
constexpr Counts ring_counts(int p, std::int64_t n, Collective collective) {
  const std::int64_t moved = n * (p - 1) / p;
  return {halves(collective) * (p - 1), halves(collective) * moved, scatters(collective) * moved};
}

}  // namespace paceline::schedule
