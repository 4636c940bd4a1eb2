// ring: every rank communicates only with its two neighbours. The least traffic, but the number of rounds grows with the ranks; the choice
// for long buffers. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009. p ranks, n
// elements, C chunks:
//
//                    rounds       sent           reduced
//   allreduce        2(p−1)       2(p−1)/p·n     (p−1)/p·n
//   reduce_scatter   p−1          (p−1)/p·n      (p−1)/p·n
//   all_gather       p−1          (p−1)/p·n      0
//   broadcast        C+p−2        n              0            a chain from the root, C chunks one after the other
//   reduce           C+p−2        n              n            the same chain backwards
//   all_to_all       p−1          (p−1)/p·n      0            round k: to r+k, from r−k
//   barrier          p−1          0              0            an all-gather of nothing
//
// Invariant: after reduce-scatter step t rank r holds part r−2−t reduced over t+2 ranks, so part r is complete after t = p−2
// (passes/ring.h). Each element is reduced once around the ring, so all ranks get the same bits.
#include "paceline/schedule/passes/ring.h"

#include "paceline/schedule/closed_rounds.h"
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/rotation.h"
#include "paceline/schedule/passes/tree.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace ring_steps {

void around(StepList& list, const Problem& p) { ring_pass(list, everyone(p), parts(p), p.collective, 0); }
Counts around_counts(const Problem& p) { return ring_counts(p.size, p.count, p.collective); }

void broadcast(StepList& list, const Problem& p) { tree_broadcast(list, chain(from_root(p)), whole(p), p.chunks, 0); }
Counts broadcast_counts(const Problem& p) { return {static_cast<int>(p.chunks) + p.size - 2, p.count, 0}; }

void reduce(StepList& list, const Problem& p) { tree_reduce(list, chain(from_root(p)), whole(p), p.chunks, 0); }
Counts reduce_counts(const Problem& p) { return {static_cast<int>(p.chunks) + p.size - 2, p.count, p.count}; }

void all_to_all(StepList& list, const Problem& p) { rotation_pass(list, p, 1); }
Counts all_to_all_counts(const Problem& p) { return {p.size - 1, p.count * (p.size - 1) / p.size, 0}; }

constexpr Method kMethods[] = {
    {Collective::allreduce, around, around_counts},  {Collective::reduce_scatter, around, around_counts},
    {Collective::all_gather, around, around_counts}, {Collective::broadcast, broadcast, broadcast_counts},
    {Collective::reduce, reduce, reduce_counts},     {Collective::all_to_all, all_to_all, all_to_all_counts},
    {Collective::barrier, around, around_counts},
};

}  // namespace ring_steps

Algorithm ring() {
  Algorithm made = algorithm<ring_steps::kMethods>();
  made.rounds = ring_rounds, made.near = true;
  return made;
}

}  // namespace paceline::schedule
