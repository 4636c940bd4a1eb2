#include "paceline/schedule/path.h"

#include <algorithm>

#include "paceline/schedule/held.h"

namespace paceline::schedule {
namespace {

/// What one rank, or the ranks of one host, send and receive in a round.
struct Both {
  std::int64_t sends = 0, receives = 0, sent = 0, received = 0;

  void add(bool leaves, std::int64_t elements) {
    (leaves ? sends : receives) += 1;
    (leaves ? sent : received) += elements;
  }
  std::int64_t queued() const { return std::max({sends, receives, std::int64_t{1}}) - 1; }
  std::int64_t moved() const { return std::max(sent, received); }
  bool any() const { return sends + receives > 0; }
};

/// A round under construction, rank by rank.
class Loads {
 public:
  void add(std::span<const Step> steps, int rank, int per_host) {
    Both inside, between;
    std::int64_t reduced = 0;
    const int host = rank / per_host;
    if (host != host_) host_ = host, across_ = {};
    for (const Step& step : steps) {
      if (step.stays()) continue;
      const bool near = step.peer / per_host == host;
      (near ? inside : between).add(step.leaves(), step.range.size());
      if (!near) across_.add(step.leaves(), step.range.size());
      if (step.is_added()) reduced += step.range.size();
    }
    take_most(round_.inside, {inside.any(), inside.queued(), inside.moved()});
    take_most(round_.between, {between.any(), between.queued(), across_.moved()});
    round_.reduced = std::max(round_.reduced, reduced);
    round_.held = std::max(round_.held, held_elements(steps));
  }
  const Round& round() const { return round_; }

 private:
  static void take_most(Traffic& most, const Traffic& other) {
    most.any = most.any || other.any;
    most.queued = std::max(most.queued, other.queued), most.moved = std::max(most.moved, other.moved);
  }

  Round round_;
  int host_ = -1;
  Both across_;  // of the host whose ranks are being added
};

}  // namespace

std::vector<Round> critical_rounds(const Algorithm& algorithm, Problem problem, int per_host) {
  std::vector<Loads> loads;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) {
    const Steps steps = algorithm.steps(problem);
    for (std::span<const Step> rest = steps; !rest.empty();) {
      const std::span<const Step> round = first_round(rest);
      const auto number = static_cast<std::size_t>(round.front().round);
      loads.resize(std::max(loads.size(), number + 1));
      loads[number].add(round, problem.rank, per_host);
      rest = rest.subspan(round.size());
    }
  }
  std::vector<Round> rounds;
  rounds.reserve(loads.size());
  for (const Loads& load : loads) rounds.push_back(load.round());
  return rounds;
}

Path critical_path(const Algorithm& algorithm, const Problem& problem) {
  Path path;
  for (const Round& round : critical_rounds(algorithm, problem, 1)) {
    path.rounds += round.between.any, path.queued += round.between.queued, path.moved += round.between.moved;
    path.reduced += round.reduced, path.held += round.held;
  }
  return path;
}

}  // namespace paceline::schedule
