// torus2d: the ranks form a grid of d1 rows and d2 columns, with rings along both sides (Mikami et al., "Massively distributed SGD", 2018;
// the mesh of the performance model): a ring's traffic in about 4√p rounds. d1 is the largest divisor of p not above √p, so a prime p gives
// one ring. p ranks, n elements:
//
//                    rounds          sent           reduced
//   allreduce        2(d1+d2−2)      2(p−1)/p·n     (p−1)/p·n
//   reduce_scatter   d1+d2−2         (p−1)/p·n      (p−1)/p·n     down the columns, then along the rows
//   all_gather       d1+d2−2         (p−1)/p·n      0             along the rows, then down the columns
//   barrier          d1+d2−2         0              0
//
// Invariant: after the columns' reduce-scatter, a rank holds its row's part of the buffer, the parts of the row's d2 ranks, reduced over
// its column; the row's reduce-scatter completes it and leaves every rank its own part.
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/ring.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace torus2d_steps {

/// d1.
int rows(int size) {
  int best = 1;
  for (int d = 1; d * d <= size; ++d) {
    if (size % d == 0) best = d;
  }
  return best;
}

void along_both(StepList& list, const Problem& p) {
  const int d1 = rows(p.size), d2 = p.size / d1, row = p.rank / d2, column = p.rank % d2;
  const Team down{.size = d1, .me = row, .first = column, .stride = d2, .around = p.size};
  const Team along{.size = d2, .me = column, .first = row * d2, .around = p.size};
  const Blocks stretches = cut(whole(p), d1), of_my_row = [&](int index) { return part(p.count, p.size, row * d2 + index); };
  int round = 0;
  if (scatters(p.collective)) round = ring_pass(list, down, stretches, Collective::reduce_scatter, round);
  round = ring_pass(list, along, of_my_row, p.collective, round);
  if (gathers(p.collective)) ring_pass(list, down, stretches, Collective::all_gather, round);
}

Counts along_both_counts(const Problem& p) {
  const int d1 = rows(p.size), d2 = p.size / d1;
  return ring_counts(d1, p.count, p.collective) + ring_counts(d2, p.count / d1, p.collective);
}

constexpr Method kMethods[] = {
    {Collective::allreduce, along_both, along_both_counts},
    {Collective::reduce_scatter, along_both, along_both_counts},
    {Collective::all_gather, along_both, along_both_counts},
    {Collective::barrier, along_both, along_both_counts},
};

}  // namespace torus2d_steps

Algorithm torus2d() {
  Algorithm made = algorithm<torus2d_steps::kMethods>();
  made.near = true;
  return made;
}

}  // namespace paceline::schedule
