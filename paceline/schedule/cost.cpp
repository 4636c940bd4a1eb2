#include "paceline/schedule/cost.h"

#include <algorithm>
#include <bit>

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
  const auto seconds = [&](const Entry<Algorithm>& row) {
    Problem cut = problem;
    cut.chunks = row.make.chunks(problem, problem.count * element_bytes);
    return predict(costs, row.make, cut, element_bytes);
  };
  return std::string(cheapest(problem.collective, seconds).key);
}

const Entry<Algorithm>& cheapest(Collective collective, const std::function<double(const Entry<Algorithm>&)>& seconds) {
  const Entry<Algorithm>* best = nullptr;
  double least = 0;
  for (const auto& row : algorithms()) {
    if (!row.make.offer(collective)) continue;
    const double time = seconds(row);
    if (best == nullptr || time < least * kClearly) least = time, best = &row;
  }
  return *best;
}

std::string_view settled(const Problem& problem, bool shares_memory) {
  for (const auto& row : algorithms())
    if (row.make.settles && row.make.settles(problem, shares_memory)) return row.key;
  return {};
}

bool runs_in_shared_memory(std::string_view algorithm) {
  if (algorithm == "auto") return true;
  const Lowering& lowering = find(algorithms(), "algorithm", algorithm).make.lowering;
  return lowering && lowering.covers({.size = 2, .per_host = 2});
}

std::int64_t rounded_length(std::int64_t bytes) {
  const int bits = std::bit_width(static_cast<std::uint64_t>(bytes));
  const std::int64_t step = std::int64_t{1} << std::max(bits - 4, 0);
  return (bytes + step - 1) / step * step;
}

}  // namespace paceline::schedule
