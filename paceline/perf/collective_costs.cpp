#include "paceline/perf/collective_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "paceline/memory/estimate.h"

namespace paceline::perf {
namespace {

using schedule::Collective;

constexpr int kManyRanks = 32;  // from this number on, closed forms are used if there are any
constexpr int kVeryMany = 128;
constexpr std::int64_t kWireElement = 4;

/// The algorithm that is named, or that is used regardless of its cost; empty: the cheapest one.
std::string_view named_by(const std::string& algorithm, const schedule::Problem& problem) {
  if (algorithm != "auto") return schedule::configured_for(algorithm, problem.collective);
  return schedule::settled(problem, /*shares_memory=*/true);
}

}  // namespace

const CollectiveRounds::Normal& CollectiveRounds::of(const Entry<schedule::Algorithm>& row, schedule::Problem problem) {
  const Key key{row.key, problem.collective, problem.size, problem.per_host, problem.chunks, problem.short_sum};
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
  Normal made;
  problem.count = made.count = problem.collective == Collective::barrier ? 0 : problem.size * problem.chunks * 720;
  if (problem.size >= kManyRanks)
    if (auto closed = schedule::closed_rounds(row.make, problem, problem.per_host)) made.rounds = std::move(*closed);
  if (made.rounds.empty()) made.rounds = schedule::critical_rounds(row.make, problem, problem.per_host);
  made.sent = static_cast<double>(row.make.formula(problem).sent);
  return kept_.emplace(key, std::move(made)).first->second;
}

CollectiveCost CollectiveCosts::by(const Entry<schedule::Algorithm>& row, schedule::Costs costs, schedule::Problem problem, double bytes,
                                   double contention) {
  if (!row.make.near) costs.between.bytes_per_s /= contention;
  const auto length = static_cast<std::int64_t>(std::ceil(bytes));
  problem.count = std::max<std::int64_t>(length / kWireElement, 1);
  problem = row.make.sized(problem, length, /*shares_memory=*/true);
  problem.chunks = std::min(problem.chunks, problem.count);
  // Among many ranks, chunks by powers of two: their lists are long, and the next number of chunks costs nearly the same.
  if (problem.size >= kVeryMany) problem.chunks = std::int64_t{1} << std::lround(std::log2(static_cast<double>(problem.chunks)));
  const CollectiveRounds::Normal& rounds = rounds_->of(row, problem);
  const double element = rounds.count > 0 ? bytes / static_cast<double>(rounds.count) : 0;
  return {row.key, schedule::seconds_of(costs, rounds.rounds, element), rounds.sent * element};
}

const CollectiveTimes* CollectiveCosts::measured(const schedule::Problem& problem, std::string_view algorithm) const {
  for (const CollectiveTimes& times : measured_)
    if (times.collective == name_of(problem.collective) && times.algorithm == algorithm && times.ranks == problem.size &&
        times.per_host == problem.per_host)
      return &times;
  return nullptr;
}

const CollectiveCost& CollectiveCosts::of(const schedule::Costs& costs, Collective collective, const std::string& algorithm, int size,
                                          double bytes, double contention) {
  static constexpr CollectiveCost kNone{};
  if (size <= 1 || (bytes <= 0 && collective != Collective::barrier)) return kNone;
  const Key key{algorithm, collective, size, costs.per_host, costs.between.bytes_per_s, bytes};
  if (const auto found = costs_.find(key); found != costs_.end()) return found->second;
  const schedule::Problem problem{.collective = collective, .size = size, .per_host = costs.per_host};
  const std::string_view named = named_by(algorithm, problem);
  const std::function<double(const Entry<schedule::Algorithm>&)> seconds = [&](const Entry<schedule::Algorithm>& row) {
    return by(row, costs, problem, bytes, contention).seconds;
  };
  const auto& row = named.empty() ? schedule::cheapest(collective, seconds) : schedule::algorithm_for(named, collective);
  CollectiveCost best = by(row, costs, problem, bytes, contention);
  const CollectiveTimes* known = measured(problem, algorithm);
  if (!known) known = measured(problem, best.algorithm);
  if (known) {
    best.seconds = known->at(bytes), best.source = known->source;
    const auto show = [](double length) { return memory::readable(std::llround(length)); };
    if (!known->covers(bytes))
      best.outside = fmt::format("{} of {} lies outside of what was measured ({} to {})", name_of(collective), show(bytes),
                                 show(known->points.front().bytes), show(known->points.back().bytes));
  }
  return costs_.emplace(key, best).first->second;
}

}  // namespace paceline::perf
