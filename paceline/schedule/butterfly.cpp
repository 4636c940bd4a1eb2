// butterfly: recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", ICCS 2004): the
// traffic of a ring in a logarithmic number of rounds. p ranks, n elements, p' = 2^⌊lg p⌋, e = p − p':
//
//                    rounds             sent                  reduced
//   allreduce        2 lg p'            2(p−1)/p·n            (p−1)/p·n              e = 0
//                    2 lg p' + 2        (2(p'−1)/p' + 1)·n    ((p'−1)/p' + 1)·n      e > 0
//   reduce_scatter   lg p'              (p−1)/p·n             (p−1)/p·n              e = 0
//                    lg p' + 2          n                     (D/p + 1)·n            e > 0
//   all_gather       lg p'              (p−1)/p·n             0                      e = 0
//                    lg p' + 2          (D/p + 1)·n           0                      e > 0
//
// with D = p'−1 + Σ min(2^j, e) over j < lg p': what the first member of halving and doubling reduces or sends, in parts.
//
// Sent is what the busiest rank sends, the even one of a pair. Before that it has received n elements from the odd one, so if e > 0 the
// critical path (path.h) of an allreduce has (2(p'−1)/p' + 2)·n.
//
// Invariant: before the halving at distance d a member holds the sums of its aligned group of 2d members' blocks over all members that
// differ from it only in higher bits; both partners then add the same two numbers, and only one keeps each sum.
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/fold.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace butterfly_steps {

void allreduce(StepList& list, const Problem& p) {
  const Fold fold(p);
  const Blocks blocks = cut(whole(p), fold.members);
  int round = fold_in(list, fold, whole(p), Step::Kind::reduce, 0);
  round = halving_pass(list, fold, blocks, round);
  round = doubling_pass(list, fold, blocks, round);
  fold_out(list, fold, whole(p), round);
}

Counts allreduce_counts(const Problem& p) {
  const Fold fold(p);
  const std::int64_t moved = p.count * (fold.members - 1) / fold.members, folded = fold.extra > 0 ? p.count : 0;
  return {folded_rounds(fold, 2), 2 * moved + folded, moved + folded};
}

void reduce_scatter(StepList& list, const Problem& p) {
  const Fold fold(p);
  int round = fold_in(list, fold, whole(p), Step::Kind::reduce, 0);
  round = halving_pass(list, fold, folded_parts(p, fold), round);
  if (fold.extra > 0) fold_out(list, fold, part(p.count, p.size, fold.odd()), round);
}

Counts reduce_scatter_counts(const Problem& p) {
  const Fold fold(p);
  const std::int64_t halved = doubled_parts(fold) * p.count / p.size;
  if (fold.extra == 0) return {folded_rounds(fold, 1), halved, halved};
  return {folded_rounds(fold, 1), p.count, halved + p.count};
}

constexpr Method kMethods[] = {
    {Collective::allreduce, allreduce, allreduce_counts},
    {Collective::reduce_scatter, reduce_scatter, reduce_scatter_counts},
    {Collective::all_gather, doubling_all_gather, doubling_all_gather_counts},
};

}  // namespace butterfly_steps

Algorithm butterfly() { return algorithm<butterfly_steps::kMethods>(); }

}  // namespace paceline::schedule
