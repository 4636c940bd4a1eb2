// The pass in which all ranks exchange with all others at once: one round for a reduce-scatter, one for an all-gather.
//
// Only its owner reduces a block, in the order owner, owner+1, owner+2, … (mod p), so all ranks get the same bits.
#pragma once

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {

/// `collective` is reduce_scatter, all_gather, allreduce or barrier. Returns the round after the last.
int direct_pass(StepList& list, const Team& team, const Blocks& blocks, Collective collective, int round);

/// All ranks send everything to those that `needs` the sum, which add it for themselves in one round, with the same order of additions:
/// block by block, from the block's owner on.
int direct_sum_pass(StepList& list, const Problem& problem, const std::function<bool(int rank)>& needs, int round);

/// As many elements as a ring, but one round per half.
constexpr Counts direct_counts(int p, std::int64_t n, Collective collective) {
  const std::int64_t moved = n * (p - 1) / p;
  return {p > 1 ? halves(collective) : 0, halves(collective) * moved, scatters(collective) * moved};
}

}  // namespace paceline::schedule
