// bucket: the long-vector algorithms of van de Geijn ("On global combine operations", JPDC 1994; Chan et al., "Collective communication:
// theory, practice, and experience", 2007), the BKT of the performance model: buckets go round a ring, and, if there is a root, a minimum
// spanning tree scatters before it or gathers after it. p ranks, n elements, s = the most ranks below one child of the root:
//
//                    rounds         sent                reduced
//   allreduce        2(p−1)         2(p−1)/p·n          (p−1)/p·n
//   reduce_scatter   p−1            (p−1)/p·n           (p−1)/p·n
//   all_gather       p−1            (p−1)/p·n           0
//   broadcast        ⌈lg p⌉+p−1     2(p−1)/p·n          0            scatter, all-gather
//   reduce           ⌈lg p⌉+p−1     (p−1+s)/p·n         (p−1)/p·n    reduce-scatter, gather
//
// Allreduce and its halves are those of `ring`.
//
// Invariant: if there is a root, parts belong to the ranks as counted from it, so the parts below a rank of the tree are one range.
#include "paceline/schedule/closed_rounds.h"
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/ring.h"
#include "paceline/schedule/passes/tree.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace bucket_steps {

void around(StepList& list, const Problem& p) { ring_pass(list, everyone(p), parts(p), p.collective, 0); }
Counts around_counts(const Problem& p) { return ring_counts(p.size, p.count, p.collective); }

void broadcast(StepList& list, const Problem& p) {
  const Team team = from_root(p);
  const int round = tree_scatter(list, spanning_tree(team), parts(p), 0);
  ring_pass(list, team, parts(p), Collective::all_gather, round);
}

Counts broadcast_counts(const Problem& p) {
  const Counts scatter{ceil_log2(p.size), p.count * (p.size - 1) / p.size, 0};
  return scatter + ring_counts(p.size, p.count, Collective::all_gather);
}

void reduce(StepList& list, const Problem& p) {
  const Team team = from_root(p);
  const int round = ring_pass(list, team, parts(p), Collective::reduce_scatter, 0);
  tree_gather(list, spanning_tree(team), parts(p), round);
}

Counts reduce_counts(const Problem& p) {
  const Counts gather{ceil_log2(p.size), p.count * most_below_child(p.size) / p.size, 0};
  return ring_counts(p.size, p.count, Collective::reduce_scatter) + gather;
}

constexpr Method kMethods[] = {
    {Collective::allreduce, around, around_counts},  {Collective::reduce_scatter, around, around_counts},
    {Collective::all_gather, around, around_counts}, {Collective::broadcast, broadcast, broadcast_counts},
    {Collective::reduce, reduce, reduce_counts},
};

}  // namespace bucket_steps

Algorithm bucket() {
  Algorithm made = algorithm<bucket_steps::kMethods>();
  made.rounds = ring_rounds, made.near = true;
  return made;
}

}  // namespace paceline::schedule
