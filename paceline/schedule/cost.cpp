#include "paceline/schedule/cost.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "paceline/schedule/rounds_cost.h"

namespace paceline::schedule {
namespace {

constexpr double kClearly = 1 - 1e-9;  // by more than rounding errors, which may differ between the ranks' processors

double seconds(const Link& link, const Traffic& traffic, double element_bytes) {
  if (!traffic.any) return 0;
  return link.alpha_s + static_cast<double>(traffic.queued) * link.gap_s +
         static_cast<double>(traffic.moved) * element_bytes / link.bytes_per_s;
}

}  // namespace

double seconds_of(const Costs& costs, std::span<const Round> rounds, double element_bytes) {
  double total = 0;
  for (const Round& round : rounds)
    total += std::max(seconds(costs.inside, round.inside, element_bytes), seconds(costs.between, round.between, element_bytes)) +
             static_cast<double>(round.reduced) * element_bytes * costs.reduce_s_per_byte +
             static_cast<double>(round.held) * element_bytes * costs.held_s_per_byte;
  return total;
}

double predict(const Costs& costs, const Algorithm& algorithm, const Problem& problem, std::int64_t element_bytes) {
  return seconds_of(costs, critical_rounds(algorithm, problem, costs.per_host), static_cast<double>(element_bytes));
}

std::string cheapest(const Costs& costs, const Problem& problem, std::int64_t element_bytes) {
  std::string_view best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& row : algorithms()) {
    if (!row.make.offer(problem.collective)) continue;
    Problem cut = problem;
    cut.chunks = row.make.chunks(problem, problem.count * element_bytes);
    const double time = predict(costs, row.make, cut, element_bytes);
    if (time < least * kClearly) least = time, best = row.key;
  }
  return std::string(best);
}

std::string_view settled(const Problem& problem, bool shares_memory) {
  if (shares_memory && problem.per_host >= problem.size) return "direct";
  if (problem.per_host > 1 && problem.collective == Collective::allreduce) return "hierarchical";
  return problem.collective == Collective::barrier ? "recursive_doubling" : "";
}

std::int64_t rounded_length(std::int64_t bytes) {
  const int bits = std::bit_width(static_cast<std::uint64_t>(bytes));
  const std::int64_t step = std::int64_t{1} << std::max(bits - 4, 0);
  return (bytes + step - 1) / step * step;
}

}  // namespace paceline::schedule
