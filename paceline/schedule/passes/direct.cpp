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

}  // namespace paceline::schedule
