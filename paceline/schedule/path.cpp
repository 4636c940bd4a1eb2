#include "paceline/schedule/path.h"

#include <algorithm>

#include "paceline/schedule/held.h"

namespace paceline::schedule {
namespace {

/// What one rank does in one round.
Path load_of(std::span<const Step> round) {
  std::int64_t sends = 0, receives = 0, sent = 0, received = 0;
  Path load{.rounds = 1, .held = held_elements(round)};
  for (const Step& step : round) {
    if (step.kind == Step::Kind::copy) continue;
    const bool leaves = step.kind == Step::Kind::send || step.kind == Step::Kind::give;
    (leaves ? sends : receives) += 1;
    (leaves ? sent : received) += step.range.size();
    if (step.kind == Step::Kind::reduce) load.reduced += step.range.size();
  }
  load.queued = std::max({sends, receives, std::int64_t{1}}) - 1;
  load.moved = std::max(sent, received);
  if (sends + receives == 0) load.rounds = 0;
  return load;
}

void take_most(Path& most, const Path& other) {
  most.rounds = std::max(most.rounds, other.rounds);
  most.queued = std::max(most.queued, other.queued);
  most.moved = std::max(most.moved, other.moved);
  most.reduced = std::max(most.reduced, other.reduced);
  most.held = std::max(most.held, other.held);
}

}  // namespace

Path critical_path(const Algorithm& algorithm, Problem problem) {
  std::vector<Path> rounds;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) {
    const Steps steps = algorithm.steps(problem);
    for (std::span<const Step> rest = steps; !rest.empty();) {
      const std::span<const Step> round = first_round(rest);
      const auto number = static_cast<std::size_t>(round.front().round);
      rounds.resize(std::max(rounds.size(), number + 1));
      take_most(rounds[number], load_of(round));
      rest = rest.subspan(round.size());
    }
  }
  Path path;
  for (const Path& round : rounds) {
    path.rounds += round.rounds, path.queued += round.queued;
    path.moved += round.moved, path.reduced += round.reduced, path.held += round.held;
  }
  return path;
}

}  // namespace paceline::schedule
