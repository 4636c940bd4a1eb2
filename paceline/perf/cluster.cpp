#include "paceline/perf/cluster.h"

namespace paceline::perf {

std::string_view name_of(Topology topology) {
  static constexpr std::string_view kNames[] = {"star", "mesh", "torus", "fat_tree"};
  return kNames[static_cast<int>(topology)];
}

std::vector<std::int64_t> square_sides(std::int64_t ranks) {
  std::int64_t side = 1;
  for (std::int64_t d = 1; d * d <= ranks; ++d)
    if (ranks % d == 0) side = d;
  return {side, ranks / side};
}

schedule::Costs costs_of(const Cluster& cluster) {
  const auto link = [](const Link& of, double rails) {
    return schedule::Link{.alpha_s = of.latency.value, .gap_s = 0, .bytes_per_s = of.bandwidth.value * rails};
  };
  const double memory = cluster.device.memory_bandwidth.value;
  return {.inside = link(cluster.inside, 1),
          .between = link(cluster.between, static_cast<double>(cluster.rails)),
          .reduce_s_per_byte = 3 / memory,
          .held_s_per_byte = 2 / memory,
          .per_host = static_cast<int>(cluster.devices)};
}

}  // namespace paceline::perf
