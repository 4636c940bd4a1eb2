// tree: the minimum spanning tree (MST), ⌈lg p⌉ levels deep; the choice for short buffers, and with chunks for longer ones. p ranks, n
// elements, C chunks, L = ⌈lg p⌉, s = the most ranks below one child of the root:
//
//                    rounds       sent              reduced
//   allreduce        2L+C−1       L·n               L·n          reduce, broadcast; a chunk turns around at the root at once
//   reduce           L+C−1        n                 L·n
//   broadcast        L+C−1        L·n               0
//   reduce_scatter   2L+C−1       n + (s−1)/p·n     L·n          reduce, scatter
//   all_gather       2L+C−1       L·n               0            gather, broadcast
//   barrier          2L           0                 0            reduce and broadcast of nothing
//
// Sent is what the root sends. It receives as much before, so the critical path (path.h) of an allreduce has 2L·n elements for one chunk,
// the 2⌈lg p⌉·n/B of textbooks, and approaches L·n with many chunks, when the root does both at once.
//
// Invariant: chunk c crosses level l in round c + l (passes/tree.h), so a rank forwards a chunk only in a later round than it arrived.
#include "paceline/schedule/passes/tree.h"

#include "paceline/schedule/method.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace tree_steps {

int levels(const Problem& p) { return ceil_log2(p.size); }
int pipelined(const Problem& p, int passes) { return passes * levels(p) + static_cast<int>(p.chunks) - 1; }

void allreduce(StepList& list, const Problem& p) { tree_allreduce(list, spanning_tree(everyone(p)), whole(p), p.chunks, 0); }
Counts allreduce_counts(const Problem& p) { return {pipelined(p, 2), levels(p) * p.count, levels(p) * p.count}; }

void reduce(StepList& list, const Problem& p) { tree_reduce(list, spanning_tree(from_root(p)), whole(p), p.chunks, 0); }
Counts reduce_counts(const Problem& p) { return {pipelined(p, 1), p.count, levels(p) * p.count}; }

void broadcast(StepList& list, const Problem& p) { tree_broadcast(list, spanning_tree(from_root(p)), whole(p), p.chunks, 0); }
Counts broadcast_counts(const Problem& p) { return {pipelined(p, 1), levels(p) * p.count, 0}; }

void reduce_scatter(StepList& list, const Problem& p) {
  const Node node = spanning_tree(everyone(p));
  const int round = tree_reduce(list, node, whole(p), p.chunks, 0);
  tree_scatter(list, node, parts(p), round);
}

Counts reduce_scatter_counts(const Problem& p) {
  return {pipelined(p, 2), p.count + p.count * (most_below_child(p.size) - 1) / p.size, levels(p) * p.count};
}

void all_gather(StepList& list, const Problem& p) {
  const Node node = spanning_tree(everyone(p));
  const int round = tree_gather(list, node, parts(p), 0);
  tree_broadcast(list, node, whole(p), p.chunks, round);
}

Counts all_gather_counts(const Problem& p) { return {pipelined(p, 2), levels(p) * p.count, 0}; }

constexpr Method kMethods[] = {
    {Collective::allreduce, allreduce, allreduce_counts},    {Collective::reduce, reduce, reduce_counts},
    {Collective::broadcast, broadcast, broadcast_counts},    {Collective::reduce_scatter, reduce_scatter, reduce_scatter_counts},
    {Collective::all_gather, all_gather, all_gather_counts}, {Collective::barrier, allreduce, allreduce_counts},
};

}  // namespace tree_steps

Algorithm tree() {
  Algorithm made = algorithm<tree_steps::kMethods>();
  made.near = true;
  return made;
}

}  // namespace paceline::schedule
