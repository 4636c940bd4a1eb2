#include "paceline/comm/tuning.h"

#include <algorithm>
#include <chrono>

#include "paceline/comm/reduce.h"

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

/// A collective rather than a message: a collective has its own tags, so that no message of the caller is mistaken for one of these.
double all_gather_seconds(Communicator& communicator, const std::string& algorithm, std::int64_t bytes) {
  std::vector<std::uint8_t> data(static_cast<std::size_t>(bytes));
  return median_seconds(
      [&] { communicator.run(all_gather(data, {.op = ReduceOp::sum, .root = 0, .algorithm = algorithm, .deadline = {}})); });
}

// Mailboxes in memory, TCP inside a host, and TCP over 10 Gbit/s: the choice depends on the cost of a message relative to a byte, which is
// similar on many machines.
constexpr schedule::Link kMemory = {.alpha_s = 2e-6, .gap_s = 1e-6, .bytes_per_s = 12e9};
constexpr schedule::Link kLoopback = {.alpha_s = 15e-6, .gap_s = 4e-6, .bytes_per_s = 4e9};
constexpr schedule::Link kNetwork = {.alpha_s = 30e-6, .gap_s = 5e-6, .bytes_per_s = 1.1e9};
constexpr double kReduceSecondsPerByte = 0.05e-9;

}  // namespace

schedule::Costs built_in_costs(bool network, const CommConfig& config, const Topology& topology) {
  schedule::Link link = network ? kNetwork : kMemory;
  link.alpha_s += (config.link_latency_us + config.link_jitter_us / 2) * 1e-6;
  if (config.link_gbit_per_s > 0) link.bytes_per_s = std::min(link.bytes_per_s, config.link_gbit_per_s * 1e9 / 8);
  schedule::Costs costs = schedule::Costs::uniform(link, kReduceSecondsPerByte);
  if (topology.hosts > 1 && topology.per_host > 1 && !topology.scattered)
    costs.inside = network ? kLoopback : kMemory, costs.per_host = topology.per_host;
  else costs.inside.bytes_per_s = costs.between.bytes_per_s = link.bytes_per_s / topology.per_host;
  return costs;
}

schedule::Costs measure_costs(Communicator& communicator) {
  constexpr std::int64_t kSmall = 8, kLarge = 2 << 20, kElements = 1 << 18;
  // A ring makes p − 1 rounds of one message, `direct` one round of p − 1 messages.
  const int p = communicator.size();
  const double ring = all_gather_seconds(communicator, "ring", kSmall * p),
               at_once = all_gather_seconds(communicator, "direct", kSmall * p);
  const double large = all_gather_seconds(communicator, "ring", kLarge);
  const double alpha = ring / (p - 1), gap = p > 2 ? std::clamp((at_once - alpha) / (p - 2), 0.0, alpha) : 0;
  std::vector<float> a(kElements), b(kElements);
  const double reduction = median_seconds([&] { combine(DType::f32, ReduceOp::sum, a.data(), b.data(), kElements); });
  std::vector<double> costs{alpha, gap, static_cast<double>(kLarge) * (p - 1) / p / std::max(large - ring, 1e-9),
                            reduction / (kElements * sizeof(float))};
  communicator.run(broadcast(costs, {.op = ReduceOp::sum, .root = 0, .algorithm = "tree", .deadline = {}}));
  return schedule::Costs::uniform({.alpha_s = costs[0], .gap_s = costs[1], .bytes_per_s = costs[2]}, costs[3]);
}

}  // namespace paceline::comm
