#include "paceline/schedule/passes/fold.h"

#include <bit>

namespace paceline::schedule {
namespace {

/// The blocks of the aligned group of `d` members that `member` belongs to.
Range group(const Blocks& blocks, int member, int d) {
  const int begin = member - member % d;
  return stretch(blocks, begin, begin + d);
}

}  // namespace

Fold::Fold(const Problem& problem)
    : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(problem.size)))), extra(problem.size - members), rank(problem.rank) {
  const bool paired = rank < 2 * extra;
  if (paired) partner = rank ^ 1;
  if (!paired) me = rank - extra;
  else if (rank % 2 == 0) me = rank / 2;
}

Blocks folded_parts(const Problem& problem, const Fold& fold) {
  return [=, parts = parts(problem)](int member) { return stretch(parts, fold.rank_of(member), fold.rank_of(member + 1)); };
}

int fold_in(StepList& list, const Fold& fold, Range range, Step::Kind arrival, int round) {
  if (fold.extra == 0) return round;
  list.round(round);
  if (fold.me < 0) list.send(fold.partner, range);
  else if (fold.partner >= 0) list.add(arrival, fold.partner, range);
  return round + 1;
}

int fold_out(StepList& list, const Fold& fold, Range range, int round) {
  if (fold.extra == 0) return round;
  list.round(round);
  if (fold.me < 0) list.receive(fold.partner, range);
  else if (fold.partner >= 0) list.send(fold.partner, range);
  return round + 1;
}

int halving_pass(StepList& list, const Fold& fold, const Blocks& blocks, int round) {
  for (int d = fold.members / 2; d >= 1; d /= 2, ++round) {
    if (fold.me < 0) continue;
    const int other = fold.me ^ d, peer = fold.rank_of(other);
    list.round(round).exchange(peer, group(blocks, other, d), Step::Kind::reduce, peer, group(blocks, fold.me, d));
  }
  return round;
}

int doubling_pass(StepList& list, const Fold& fold, const Blocks& blocks, int round) {
  for (int d = 1; d < fold.members; d *= 2, ++round) {
    if (fold.me < 0) continue;
    const int other = fold.me ^ d, peer = fold.rank_of(other);
    list.round(round).exchange(peer, group(blocks, fold.me, d), Step::Kind::receive, peer, group(blocks, other, d));
  }
  return round;
}

void doubling_all_gather(StepList& list, const Problem& problem) {
  const Fold fold(problem);
  int round = 0;
  if (fold.extra > 0) round = fold_in(list, fold, part(problem.count, problem.size, fold.odd()), Step::Kind::receive, round);
  round = doubling_pass(list, fold, folded_parts(problem, fold), round);
  fold_out(list, fold, whole(problem), round);
}

Counts doubling_all_gather_counts(const Problem& problem) {
  const Fold fold(problem);
  const std::int64_t doubled = doubled_parts(fold) * problem.count / problem.size;
  return {folded_rounds(fold, 1), doubled + (fold.extra > 0 ? problem.count : 0), 0};
}

std::int64_t doubled_parts(const Fold& fold) {
  std::int64_t parts = 0;
  for (int d = 1; d < fold.members; d *= 2) parts += fold.rank_of(d);
  return parts;
}

int folded_rounds(const Fold& fold, int passes) { return passes * ceil_log2(fold.members) + (fold.extra > 0 ? 2 : 0); }

}  // namespace paceline::schedule
