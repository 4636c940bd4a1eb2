#include "paceline/perf/cluster.h"

#include "paceline/base/suggest.h"

namespace paceline::perf {

std::string_view name_of(Topology topology) {
  static constexpr std::string_view kNames[] = {"star", "mesh", "torus", "fat_tree"};
  return kNames[static_cast<int>(topology)];
}

std::string_view name_of(Precision precision) {
  static constexpr std::string_view kNames[] = {"fp32", "tf32", "bf16", "fp16"};
  return kNames[static_cast<int>(precision)];
}

Precision precision_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Precision precision : kPrecisions) {
    if (name_of(precision) == name) return precision;
    names.push_back(name_of(precision));
  }
  throw ConfigError(unknown_message("precision", name, names));
}

Speed Device::speed(Precision precision) const {
  const Speed single{.flops = flops, .products = products, .convolutions = convolutions};
  const Speed& asked = precision == Precision::tf32   ? tf32
                       : precision == Precision::bf16 ? bf16
                       : precision == Precision::fp16 ? fp16
                                                      : single;
  return asked.known() ? asked : single;
}

std::vector<std::int64_t> square_sides(std::int64_t ranks) {
  std::int64_t side = 1;
  for (std::int64_t d = 1; d * d <= ranks; ++d)
    if (ranks % d == 0) side = d;
  return {side, ranks / side};
}

schedule::Costs costs_of(const Cluster& cluster) {
  const auto link = [](const Link& of, double rails) {
    return schedule::Link{.alpha_s = of.latency.value, .gap_s = of.gap.value, .bytes_per_s = of.bandwidth.value * rails};
  };
  const double memory = cluster.device.memory_bandwidth.value;
  return {.inside = link(cluster.inside, 1),
          .between = link(cluster.between, static_cast<double>(cluster.rails)),
          .reduce_s_per_byte = 1 / cluster.device.reduce_bytes_per_s(),
          .held_s_per_byte = 2 / memory,
          .per_host = static_cast<int>(cluster.devices)};
}

}  // namespace paceline::perf
