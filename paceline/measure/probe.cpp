#include "paceline/measure/probe.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "paceline/measure/device_speed.h"
#include "paceline/measure/links.h"

namespace paceline::measure {
namespace {

/// A placeholder for a link that connects no ranks here.
perf::Link standard_link(const std::string& name) {
  return {.name = name, .latency = {5e-6, perf::Source::standard}, .bandwidth = {10e9, perf::Source::standard}};
}

/// Rounds to four digits, which is finer than measurements repeat and keeps the file readable; in the unit that the file uses, so that it
/// reads back to the same bits.
void round_off(double& value) {
  double units = 1;
  while (value > 0 && value * units < 1 && units < 1e9) units *= 1000;
  const std::string text = fmt::format("{:.4g}", value * units);
  std::from_chars(text.data(), text.data() + text.size(), value);
  value /= units;
}

/// Sends rank 0's measurements to all: hosts measure links of their own, and some ranks measure none.
void take_from_first(const Rank& rank, perf::Link& link) {
  perf::Quantity* const quantities[] = {&link.latency, &link.bandwidth, &link.gap, &link.duplex};
  std::vector<double> values;
  for (const perf::Quantity* quantity : quantities) values.insert(values.end(), {quantity->value, static_cast<double>(quantity->source)});
  rank.comm.run(comm::broadcast(values, {.deadline = comm::kUntilTheEnd}));
  for (std::size_t i = 0; i < std::size(quantities); ++i) *quantities[i] = {values[2 * i], static_cast<perf::Source>(values[2 * i + 1])};
}

}  // namespace

perf::Cluster probe(const Rank& rank, const ProbeOptions& options, const Clock& clock) {
  const CallTimer timer{.rank = rank, .device = options.device, .clock = clock, .seconds = options.seconds};
  const comm::Topology topology = rank.comm.topology();
  perf::Cluster cluster{
      .name = options.name, .hosts = topology.hosts, .devices = topology.per_host, .sides = {}, .device = {}, .inside = {}, .between = {}};
  cluster.device = measure_device(timer, options.precisions, options.largest_product);
  const std::string inside_name = options.device.is_cuda() ? "gpus" : "memory";
  cluster.inside = standard_link(inside_name), cluster.between = standard_link("network");
  if (topology.per_host > 1) {
    const auto host = rank.comm.split(rank.comm.rank() / topology.per_host, rank.comm.rank());
    // The last host may have fewer ranks than the others; a single rank there has no peer, and the others do not wait for it.
    const Rank member{.comm = *host, .threads = rank.threads, .say = rank.say};
    const CallTimer among{.rank = member, .device = options.device, .clock = clock, .seconds = options.seconds};
    if (host->size() > 1) cluster.inside = measure_link(among, *host, inside_name);
    take_from_first(rank, cluster.inside);
  }
  if (topology.hosts > 1) {
    const bool first = rank.comm.rank() % topology.per_host == 0;
    const auto across = rank.comm.split(first ? 0 : 1, rank.comm.rank());
    const Rank member{.comm = *across, .threads = rank.threads, .say = rank.say};
    const CallTimer among{.rank = member, .device = options.device, .clock = clock, .seconds = options.seconds};
    if (first) cluster.between = measure_link(among, *across, "network");
    take_from_first(rank, cluster.between);
  }
  if (rank.comm.size() > 1) {
    cluster.collectives = probe_collectives(rank, options, clock);
    cluster.device.slowdown = {measure_slowdown(timer), perf::Source::measured};
  }
  if (topology.per_host == 1) cluster.inside = cluster.between;
  if (topology.hosts == 1 && topology.per_host > 1) cluster.between = cluster.inside;
  perf::Device& device = cluster.device;
  for (perf::Quantity* quantity :
       {&device.flops, &device.memory_bandwidth, &device.launch, &device.update_bandwidth, &device.reduce_bandwidth, &device.page_bandwidth,
        &device.slowdown, &device.tf32.flops, &device.bf16.flops, &device.fp16.flops, &cluster.inside.latency, &cluster.inside.bandwidth,
        &cluster.inside.gap, &cluster.between.latency, &cluster.between.bandwidth, &cluster.between.gap})
    round_off(quantity->value);
  return cluster;
}

std::vector<perf::CollectiveTimes> probe_collectives(const Rank& rank, const ProbeOptions& options, const Clock& clock) {
  const CallTimer timer{.rank = rank, .device = options.device, .clock = clock, .seconds = options.seconds};
  std::vector<perf::CollectiveTimes> all = measure_collectives(timer, options.largest_message);
  for (perf::CollectiveTimes& times : all)
    for (perf::CollectiveTimes::Point& point : times.points) round_off(point.seconds);
  return all;
}

}  // namespace paceline::measure
