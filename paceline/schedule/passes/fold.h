// Algorithms that pair ranks at distances 1, 2, 4, … need a power of two. Folding provides one: of p = p' + e ranks, p' = 2^⌊lg p⌋, the
// first 2e form pairs, in which the odd rank sends what it has to the even one, waits, and gets the result in the end. The p' others are
// members.
//
// Members are ordered by rank, so that consecutive members own consecutive parts; a pair owns two.
#pragma once

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {

struct Fold {
  explicit Fold(const Problem& problem);

  int members, extra;  // p', e
  int rank = 0;
  int me = -1;       // my index among the members; -1 for the odd rank of a pair
  int partner = -1;  // the other rank of my pair; -1 outside of pairs

  int rank_of(int member) const { return member < extra ? 2 * member : member + extra; }
  int odd() const { return me < 0 ? rank : partner; }  ///< the odd rank of my pair
};

/// The parts of the ranks that member i represents.
Blocks folded_parts(const Problem& problem, const Fold& fold);

/// Odd ranks send `range` to their partners; or the other way. Each returns the next round.
int fold_in(StepList& list, const Fold& fold, Range range, Step::Kind arrival, int round);
int fold_out(StepList& list, const Fold& fold, Range range, int round);

/// Recursive halving (a reduce-scatter of the members: distances p'/2, …, 2, 1), then recursive doubling (an all-gather: 1, 2, …, p'/2).
/// Before and after distance d a member holds the blocks of its aligned group of 2d or d members.
int halving_pass(StepList& list, const Fold& fold, const Blocks& blocks, int round);
int doubling_pass(StepList& list, const Fold& fold, const Blocks& blocks, int round);

/// The all-gather of `butterfly` and `recursive_doubling`, for any number of ranks; also a barrier.
void doubling_all_gather(StepList& list, const Problem& problem);
Counts doubling_all_gather_counts(const Problem& problem);

/// The sum of the parts that the members below 1, 2, 4, …, p'/2 represent: p − 1 if p is a power of two.
std::int64_t doubled_parts(const Fold& fold);
/// ⌊lg p⌋, plus the two rounds of folding if there are any.
int folded_rounds(const Fold& fold, int passes);

}  // namespace paceline::schedule
