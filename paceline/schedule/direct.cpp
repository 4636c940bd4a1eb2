// direct: every rank exchanges with every other at once. The least number of rounds; the choice if messages cost nothing (shared memory)
// or are short. p ranks, n elements:
//
//                    rounds   sent           reduced
//   allreduce        2        2(p−1)/p·n     (p−1)/p·n
//   reduce_scatter   1        (p−1)/p·n      (p−1)/p·n
//   all_gather       1        (p−1)/p·n      0
//   broadcast        1        (p−1)·n        0
//   reduce           1        n              (p−1)·n
//     on one host    2        n              (p−1)/p·n
//   short sums, in memory that all ranks share
//     allreduce      1        (p−1)·n        (p−1)·n
//     reduce         1        n              (p−1)·n
//   all_to_all       1        (p−1)/p·n      0
//   barrier          1        0              0
//
// If all ranks are on one host, a reduce divides the additions, its only cost there: each part's owner reduces it and sends it to the root.
// Across hosts, the root reduces everything, which saves a round. So does everyone that needs a sum of at most 512 bytes in shared memory,
// where a meeting of the ranks takes longer than all additions.
//
// Invariant: an element is reduced on one rank, its part's owner or the root, which takes the others' in the order r+1, r+2, … (mod p). In
// a short sum everyone that needs it adds in the order of the part's owner, so that all sums have the same bits, short or not.
//
// Lowering: ranks that share memory read each other's buffers in place, and write their part where it is needed.
#include "paceline/schedule/passes/direct.h"
#include "paceline/schedule/closed_rounds.h"
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/rotation.h"
#include "paceline/schedule/passes/tree.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace direct_steps {

constexpr std::int64_t kShortSum = 512;  // bytes

bool on_one_host(const Problem& p) { return p.per_host >= p.size; }

bool is_short_sum(const Problem& p, std::int64_t bytes) {
  return on_one_host(p) && bytes <= kShortSum && (p.collective == Collective::allreduce || p.collective == Collective::reduce);
}

void exchange(StepList& list, const Problem& p) {
  if (p.short_sum)
    direct_sum_pass(
        list, p, [](int) { return true; }, 0);
  else direct_pass(list, everyone(p), parts(p), p.collective, 0);
}
Counts exchange_counts(const Problem& p) {
  if (p.short_sum) return {1, (p.size - 1) * p.count, (p.size - 1) * p.count};
  return direct_counts(p.size, p.count, p.collective);
}

void broadcast(StepList& list, const Problem& p) { tree_broadcast(list, star(from_root(p)), whole(p), 1, 0); }
Counts broadcast_counts(const Problem& p) { return {1, (p.size - 1) * p.count, 0}; }

void reduce(StepList& list, const Problem& p) {
  if (p.short_sum) {
    direct_sum_pass(
        list, p, [&](int rank) { return rank == p.root; }, 0);
    return;
  }
  if (!on_one_host(p)) {
    tree_reduce(list, star(from_root(p)), whole(p), 1, 0);
    return;
  }
  const int round = direct_pass(list, everyone(p), parts(p), Collective::reduce_scatter, 0);
  const Team team = from_root(p);
  tree_gather(
      list, star(team), [&](int index) { return part(p.count, p.size, team.rank(index)); }, round);
}
Counts reduce_counts(const Problem& p) {
  return on_one_host(p) && !p.short_sum ? Counts{2, p.count, p.count * (p.size - 1) / p.size} : Counts{1, p.count, (p.size - 1) * p.count};
}

void all_to_all(StepList& list, const Problem& p) { rotation_pass(list, p, 0); }
Counts all_to_all_counts(const Problem& p) { return {1, p.count * (p.size - 1) / p.size, 0}; }

constexpr Method kMethods[] = {
    {Collective::allreduce, exchange, exchange_counts},  {Collective::reduce_scatter, exchange, exchange_counts},
    {Collective::all_gather, exchange, exchange_counts}, {Collective::broadcast, broadcast, broadcast_counts},
    {Collective::reduce, reduce, reduce_counts},         {Collective::all_to_all, all_to_all, all_to_all_counts},
    {Collective::barrier, exchange, exchange_counts},
};

}  // namespace direct_steps

Algorithm direct() {
  Algorithm made = algorithm<direct_steps::kMethods>();
  made.lowering = {
      .help =
          "every rank reads what it needs in the others' memory: no messages, and a single synchronisation for buffers of up to 512 bytes",
      .covers = direct_steps::on_one_host,
      .short_sum = direct_steps::is_short_sum};
  made.rounds = direct_rounds;
  made.settles = [](const Problem& problem, bool shares_memory) { return shares_memory && direct_steps::on_one_host(problem); };
  return made;
}

}  // namespace paceline::schedule
