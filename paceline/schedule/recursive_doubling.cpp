// recursive_doubling: partners at distances 1, 2, 4, … exchange all they have; the fewest rounds with one message per round
// (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005). p ranks, n elements, p' = 2^⌊lg p⌋,
// f = 1 if p' < p, else 0:
//
//                rounds          sent               reduced
//   allreduce    lg p' + 2f      (lg p' + f)·n      (lg p' + f)·n
//   all_gather   lg p' + 2f      D/p·n + f·n        0                 D as in `butterfly`; p − 1 for a power of two
//   barrier      lg p' + 2f      0                  0
//
// If f = 1, the busiest rank has received n elements before it sends, so the critical path (path.h) of an allreduce has (lg p' + 2)·n.
//
// Invariant: after distance d a member holds the sum over its aligned group of 2d members. Partners add the same two numbers, one in each
// order, so all ranks get the same bits as long as a ⊕ b = b ⊕ a.
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/fold.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace recursive_doubling_steps {

void allreduce(StepList& list, const Problem& p) {
  const Fold fold(p);
  int round = fold_in(list, fold, whole(p), Step::Kind::reduce, 0);
  for (int d = 1; d < fold.members; d *= 2, ++round) {
    if (fold.me < 0) continue;
    const int peer = fold.rank_of(fold.me ^ d);
    list.round(round).exchange(peer, whole(p), Step::Kind::reduce, peer, whole(p));
  }
  fold_out(list, fold, whole(p), round);
}

Counts allreduce_counts(const Problem& p) {
  const Fold fold(p);
  const std::int64_t moved = (ceil_log2(fold.members) + (fold.extra > 0)) * p.count;
  return {folded_rounds(fold, 1), moved, moved};
}

constexpr Method kMethods[] = {
    {Collective::allreduce, allreduce, allreduce_counts},
    {Collective::all_gather, doubling_all_gather, doubling_all_gather_counts},
    {Collective::barrier, doubling_all_gather, doubling_all_gather_counts},
};

}  // namespace recursive_doubling_steps

Algorithm recursive_doubling() {
  Algorithm made = algorithm<recursive_doubling_steps::kMethods>();
  made.settles = [](const Problem& problem, bool) { return problem.collective == Collective::barrier; };
  return made;
}

}  // namespace paceline::schedule
