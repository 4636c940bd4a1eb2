#include "paceline/schedule/passes/ring.h"

namespace paceline::schedule {

int ring_pass(StepList& list, const Team& team, const Blocks& blocks, Collective collective, int round) {
  const int p = team.size, half = p - 1;
  const int next = team.rank((team.me + 1) % p), previous = team.rank((team.me + half) % p);
  const int first = scatters(collective) ? 0 : half, last = gathers(collective) ? 2 * half : half;
  for (int t = first; t < last; ++t) {
    const Range out = blocks((team.me + 2 * p - 1 - t) % p), in = blocks((team.me + 2 * p - 2 - t) % p);
    const auto arrival = t < half ? Step::Kind::reduce : Step::Kind::receive;
    list.round(round++);
    list.exchange(next, out, arrival, previous, in);
  }
  return round;
}

}  // namespace paceline::schedule
