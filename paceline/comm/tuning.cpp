#include "paceline/comm/tuning.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "paceline/comm/reduce.h"
#include "paceline/schedule/held.h"

namespace paceline::comm {
namespace {

constexpr int kRounds = 7;

template <class F>
double median_seconds(F once) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto began = std::chrono::steady_clock::now();
    once();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

/// One way of a message there and back.
double one_way(Communicator& communicator, std::int64_t bytes) {
  const int last = communicator.size() - 1;
  std::vector<std::uint8_t> data(static_cast<std::size_t>(bytes));
  const bool first = communicator.rank() == 0;
  if (!first && communicator.rank() != last) return 0;
  return median_seconds([&] {
           if (first) communicator.run(send(data, last));
           communicator.run(receive(data, first ? last : 0));
           if (!first) communicator.run(send(data, 0));
         }) /
         2;
}

constexpr double kHeldSecondsPerByte = 0.1e-9;  // written and read once more

constexpr std::int64_t kChunkBytes = 128 << 10, kMostChunks = 64;

}  // namespace

std::int64_t chunks_for(std::int64_t bytes) { return std::clamp<std::int64_t>(bytes / kChunkBytes, 1, kMostChunks); }

Costs measure_costs(Communicator& communicator) {
  constexpr std::int64_t kSmallMessage = 8, kLargeMessage = 1 << 20, kElements = 1 << 18;
  const double small = one_way(communicator, kSmallMessage), large = one_way(communicator, kLargeMessage);
  std::vector<float> a(kElements), b(kElements);
  const double reduction = median_seconds([&] { combine(DType::f32, ReduceOp::sum, a.data(), b.data(), kElements); });
  std::vector<double> costs{small, static_cast<double>(kLargeMessage) / std::max(large - small, 1e-9),
                            reduction / (kElements * sizeof(float))};
  communicator.run(broadcast(costs, {.op = ReduceOp::sum, .root = 0, .algorithm = "tree"}));
  return {costs[0], costs[1], costs[2]};
}

double predict(const Costs& costs, const schedule::Counts& counts, std::int64_t element_bytes) {
  const auto bytes = static_cast<double>(element_bytes);
  return counts.rounds * costs.alpha_s + static_cast<double>(counts.sent) * bytes / costs.bytes_per_s +
         static_cast<double>(counts.reduced) * bytes * costs.reduce_s_per_byte;
}

std::string cheapest(const Costs& costs, schedule::Problem problem, std::int64_t element_bytes) {
  problem.rank = problem.root;  // all ranks must choose alike, whatever each of them has to do
  std::string_view best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& row : schedule::algorithms()) {
    if (!row.make.offer(problem.collective)) continue;
    const double seconds = predict(costs, row.make.formula(problem), element_bytes) +
                           static_cast<double>(schedule::held_elements(row.make.steps(problem)) * element_bytes) * kHeldSecondsPerByte;
    if (seconds < least) least = seconds, best = row.key;
  }
  return std::string(best);
}

}  // namespace paceline::comm
