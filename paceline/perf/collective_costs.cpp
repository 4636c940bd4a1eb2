#include "paceline/perf/collective_costs.h"

#include <algorithm>
#include <cmath>

#include "paceline/perf/collective_rounds.h"

namespace paceline::perf {
namespace {

using schedule::Collective;

constexpr int kManyRanks = 32;  // from here on closed forms, where there are any
constexpr int kVeryMany = 128;
constexpr double kClearly = 1 - 1e-9;  // as schedule/cost.cpp breaks ties
constexpr std::int64_t kWireElement = 4;

/// Whether messages go to neighbours of a grid, or along its sides without meeting (the minimum spanning tree).
bool stays_near(std::string_view algorithm) {
  return algorithm == "ring" || algorithm == "bucket" || algorithm == "torus2d" || algorithm == "tree";
}

/// The algorithm that is named, or taken whatever it costs; empty: the cheapest.
std::string_view named_by(const std::string& algorithm, const schedule::Problem& problem) {
  if (algorithm != "auto") {
    const auto& row = find(schedule::algorithms(), "algorithm", algorithm);
    return row.make.offer(problem.collective) ? row.key : "ring";
  }
  return schedule::settled(problem, /*shares_memory=*/true);
}

}  // namespace

const CollectiveCosts::Normal& CollectiveCosts::normal(const Entry<schedule::Algorithm>& row, schedule::Problem problem) {
  const RoundsKey key{row.key, problem.collective, problem.size, problem.per_host, problem.chunks};
  if (const auto found = rounds_.find(key); found != rounds_.end()) return found->second;
  Normal made;
  problem.count = made.count = problem.collective == Collective::barrier ? 0 : problem.size * problem.chunks * 720;
  if (problem.size >= kManyRanks)
    if (auto closed = closed_rounds(row.key, problem, problem.per_host)) made.rounds = std::move(*closed);
  if (made.rounds.empty()) made.rounds = schedule::critical_rounds(row.make, problem, problem.per_host);
  made.sent = static_cast<double>(row.make.formula(problem).sent);
  return rounds_.emplace(key, std::move(made)).first->second;
}

CollectiveCost CollectiveCosts::by(const Entry<schedule::Algorithm>& row, schedule::Costs costs, schedule::Problem problem, double bytes,
                                   double contention) {
  if (!stays_near(row.key)) costs.between.bytes_per_s /= contention;
  const auto length = static_cast<std::int64_t>(std::ceil(bytes));
  problem.count = std::max<std::int64_t>(length / kWireElement, 1);
  problem.chunks = std::min(row.make.chunks(problem, length), problem.count);
  // Among many ranks, chunks by powers of two: their lists are long, and the next number of chunks costs nearly the same.
  if (problem.size >= kVeryMany) problem.chunks = std::int64_t{1} << std::lround(std::log2(static_cast<double>(problem.chunks)));
  const Normal& rounds = normal(row, problem);
  const double element = rounds.count > 0 ? bytes / static_cast<double>(rounds.count) : 0;
  return {row.key, schedule::seconds_of(costs, rounds.rounds, element), rounds.sent * element};
}

std::optional<double> CollectiveCosts::measured(const schedule::Problem& problem, std::string_view algorithm, double bytes) const {
  for (const CollectiveTimes& times : measured_)
    if (times.collective == name_of(problem.collective) && times.algorithm == algorithm && times.ranks == problem.size &&
        times.per_host == problem.per_host)
      return times.at(bytes);
  return std::nullopt;
}

const CollectiveCost& CollectiveCosts::of(const schedule::Costs& costs, Collective collective, const std::string& algorithm, int size,
                                          double bytes, double contention) {
  static constexpr CollectiveCost kNone{};
  if (size <= 1 || (bytes <= 0 && collective != Collective::barrier)) return kNone;
  const Key key{algorithm, collective, size, costs.per_host, costs.between.bytes_per_s, bytes};
  if (const auto found = costs_.find(key); found != costs_.end()) return found->second;
  const schedule::Problem problem{.collective = collective, .size = size, .per_host = costs.per_host};
  CollectiveCost best;
  if (const std::string_view named = named_by(algorithm, problem); !named.empty())
    best = by(schedule::algorithm_for(named, collective), costs, problem, bytes, contention);
  else
    for (const auto& row : schedule::algorithms()) {
      if (!row.make.offer(collective)) continue;
      const CollectiveCost other = by(row, costs, problem, bytes, contention);
      if (best.algorithm.empty() || other.seconds < best.seconds * kClearly) best = other;
    }
  auto known = measured(problem, algorithm, bytes);
  if (!known) known = measured(problem, best.algorithm, bytes);
  if (known) best.seconds = *known;
  return costs_.emplace(key, best).first->second;
}

}  // namespace paceline::perf
