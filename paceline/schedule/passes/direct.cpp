#include "paceline/schedule/passes/direct.h"

namespace paceline::schedule {

int direct_pass(StepList& list, const Team& team, const Blocks& blocks, Collective collective, int round) {
  if (team.size == 1) return round;
  const auto with_all = [&](auto&& exchange) {
    list.round(round++);
    for (int i = 1; i < team.size; ++i) exchange((team.me + i) % team.size);
  };
  const Range own = blocks(team.me);
  if (scatters(collective)) {
    with_all([&](int other) { list.exchange(team.rank(other), blocks(other), Step::Kind::reduce, team.rank(other), own); });
  }
  if (gathers(collective)) {
    with_all([&](int other) { list.exchange(team.rank(other), own, Step::Kind::receive, team.rank(other), blocks(other)); });
  }
  return round;
}

int direct_sum_pass(StepList& list, const Problem& problem, const std::function<bool(int rank)>& needs, int round) {
  if (problem.size == 1) return round;
  list.round(round);
  const auto with_others = [&](auto&& with) {
    for (int i = 1; i < problem.size; ++i) with((problem.rank + i) % problem.size);
  };
  with_others([&](int other) {
    if (needs(other)) list.send(other, whole(problem));
  });
  if (needs(problem.rank)) {
    with_others([&](int other) { list.add(Step::Kind::collect, other, whole(problem)); });
    for (int owner = 0; owner < problem.size; ++owner) list.add(Step::Kind::sum, owner, part(problem.count, problem.size, owner));
  }
  return round + 1;
}

}  // namespace paceline::schedule
