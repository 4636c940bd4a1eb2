#include "paceline/schedule/closed_rounds.h"

#include <algorithm>

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {
namespace {

using Rounds = std::vector<Round>;

/// p ranks, k of them on each host.
struct Shape {
  Shape(const Problem& problem, int per_host) : p(problem.size), k(std::min<std::int64_t>(per_host, p)), n(problem.count) {}
  std::int64_t p, k, n;
  bool crosses() const { return k < p; }
};

bool gathers_all(Collective collective) { return collective == Collective::allreduce || collective == Collective::all_gather; }
/// Of parts among all ranks: an allreduce or one of its halves.
bool is_exchange(Collective collective) { return scatters(collective) || gathers_all(collective); }

/// In every round a rank sends a part to its neighbour, and one rank of a host sends it to the next host.
Rounds around(const Shape& of, Collective collective) {
  const std::int64_t part = of.n / of.p;
  Round round;
  if (of.k > 1) round.inside = {true, 0, part};
  if (of.crosses()) round.between = {true, 0, part};
  Rounds rounds;
  if (scatters(collective)) {
    rounds.assign(static_cast<std::size_t>(of.p - 1), round);
    for (Round& each : rounds) each.reduced = part;
  }
  if (gathers_all(collective)) rounds.insert(rounds.end(), static_cast<std::size_t>(of.p - 1), round);
  return rounds;
}

/// All ranks exchange with all others at once. Of the data that arrives for a rank's own part, the first message is reduced in place.
Rounds at_once(const Shape& of, Collective collective) {
  const std::int64_t part = of.n / of.p, others = of.p - of.k;
  Round round;
  if (of.k > 1) round.inside = {true, of.k - 2, (of.k - 1) * part};
  if (of.crosses()) round.between = {true, others - 1, of.k * others * part};
  Rounds rounds;
  if (scatters(collective)) {
    rounds.push_back(round);
    rounds.back().reduced = (of.p - 1) * part, rounds.back().held = (of.p - 2) * part;
  }
  if (gathers_all(collective) || collective == Collective::all_to_all) rounds.push_back(round);
  return rounds;
}

/// Round j: to the rank j further on.
Rounds rotated(const Shape& of) {
  const std::int64_t part = of.n / of.p;
  Rounds rounds;
  for (std::int64_t j = 1; j < of.p; ++j) {
    const std::int64_t near = std::min(j, of.p - j), leave = of.crosses() ? std::min(near, of.k) : 0;
    Round round;
    if (near < of.k) round.inside = {true, 0, part};
    if (leave > 0) round.between = {true, 0, leave * part};
    rounds.push_back(round);
  }
  return rounds;
}

/// An allreduce through hosts of k ranks, chunk c one round behind chunk c − 1: a direct reduce-scatter inside, a ring across, a direct
/// all-gather inside.
Rounds by_chunks(const Shape& of, std::int64_t chunks) {
  const std::int64_t hosts = of.p / of.k, slice = of.n / chunks / of.k, part = slice / hosts, inside = of.k > 1;
  const std::int64_t half = hosts - 1, last = inside + 2 * half;  // the round of a chunk's all-gather
  Rounds rounds(static_cast<std::size_t>(last + inside + chunks - 1));
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto at = [&](std::int64_t round) -> Round& { return rounds[static_cast<std::size_t>(c + round)]; };
    const auto exchange = [&](Round& round) {
      round.inside.queued += (round.inside.any ? of.k - 1 : of.k - 2);
      round.inside.any = true, round.inside.moved += (of.k - 1) * slice;
    };
    if (inside) {
      exchange(at(0)), exchange(at(last));
      at(0).reduced += (of.k - 1) * slice, at(0).held += (of.k - 2) * slice;
    }
    for (std::int64_t i = 0; i < 2 * half; ++i) {
      Round& round = at(inside + i);
      round.between.queued += round.between.any;
      round.between.any = true, round.between.moved += of.k * part;
      if (i < half) round.reduced += part;
    }
  }
  return rounds;
}

/// A half of an allreduce: inside, the parts of all hosts at once; across, a ring of each rank's parts.
Rounds by_halves(const Shape& of, Collective collective) {
  const std::int64_t hosts = of.p / of.k, part = of.n / of.p, messages = hosts * (of.k - 1);
  Rounds rounds;
  Round inside, across;
  if (of.k > 1) inside.inside = {true, messages - 1, messages * part};
  across.between = {true, 0, of.k * part};
  const bool adds = collective == Collective::reduce_scatter;
  if (adds) inside.reduced = messages * part, inside.held = hosts * (of.k - 2) * part, across.reduced = part;
  if (of.k > 1 && adds) rounds.push_back(inside);
  rounds.insert(rounds.end(), static_cast<std::size_t>(hosts - 1), across);
  if (of.k > 1 && !adds) rounds.push_back(inside);
  return rounds;
}

}  // namespace

std::optional<Rounds> ring_rounds(const Problem& problem, int per_host) {
  const Shape shape(problem, per_host);
  if (problem.collective == Collective::all_to_all) return rotated(shape);
  if (!is_exchange(problem.collective)) return std::nullopt;
  return around(shape, problem.collective);
}

std::optional<Rounds> direct_rounds(const Problem& problem, int per_host) {
  if ((!is_exchange(problem.collective) && problem.collective != Collective::all_to_all) || problem.short_sum) return std::nullopt;
  return at_once(Shape(problem, per_host), problem.collective);
}

std::optional<Rounds> hierarchical_rounds(const Problem& problem, int per_host) {
  if (!is_exchange(problem.collective) || problem.per_host != per_host) return std::nullopt;
  const Shape shape(problem, per_host);
  return problem.collective == Collective::allreduce ? by_chunks(shape, problem.chunks) : by_halves(shape, problem.collective);
}

std::optional<Rounds> closed_rounds(const Algorithm& algorithm, const Problem& problem, int per_host) {
  if (algorithm.rounds == nullptr) return std::nullopt;
  if (problem.size <= 1) return Rounds{};
  if (problem.size % std::min(per_host, problem.size) != 0) return std::nullopt;
  return algorithm.rounds(problem, per_host);
}

}  // namespace paceline::schedule
