// Writes cluster files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/perf/cluster.h"

namespace paceline::perf {
namespace {

/// A line of the file, if the value is known.
std::string optional_line(const char* key, const Quantity& quantity, Dimension dimension) {
  return quantity.value > 0 ? fmt::format("{} = \"{}\"\n", key, text_of(quantity, dimension)) : "";
}

std::string efficiency_lines(const Efficiency& products, const Efficiency& convolutions) {
  std::string lines;
  if (products.known()) lines += fmt::format("products = \"{}\"\n", text_of(products));
  if (convolutions.known()) lines += fmt::format("convolutions = \"{}\"\n", text_of(convolutions));
  return lines;
}

std::string link_toml(const Link& link) {
  return fmt::format("\n[link.{}]\nlatency = \"{}\"\nbandwidth = \"{}\"\n", link.name, text_of(link.latency, Dimension::time),
                     text_of(link.bandwidth, Dimension::bandwidth)) +
         optional_line("gap", link.gap, Dimension::time) + optional_line("duplex", link.duplex, Dimension::factor);
}

std::string device_toml(const Device& device) {
  const std::string kind = device.kind.empty() ? "" : fmt::format("kind = \"{}\"\n", device.kind);
  std::string text = fmt::format(
      "\n[device]\nname = \"{}\"\n{}flops = \"{}\"\nmemory_bandwidth = \"{}\"\nmemory = \"{}\"\nblocks = \"{} x {} x {} ({})\"\n",
      device.name, kind, text_of(device.flops, Dimension::flops), text_of(device.memory_bandwidth, Dimension::bandwidth),
      text_of(device.memory, Dimension::bytes), device.blocks.m, device.blocks.n, device.blocks.k, name_of(device.blocks.source));
  text += efficiency_lines(device.products, device.convolutions) + optional_line("launch", device.launch, Dimension::time) +
          optional_line("update_bandwidth", device.update_bandwidth, Dimension::bandwidth) +
          optional_line("reduce_bandwidth", device.reduce_bandwidth, Dimension::bandwidth) +
          optional_line("page_bandwidth", device.page_bandwidth, Dimension::bandwidth) +
          optional_line("host_link", device.host_link, Dimension::bandwidth) +
          optional_line("host_updates", device.host_updates, Dimension::bandwidth) +
          optional_line("slowdown", device.slowdown, Dimension::factor);
  for (const auto& [name, speed] : {std::pair{"tf32", device.tf32}, std::pair{"bf16", device.bf16}, std::pair{"fp16", device.fp16}})
    if (speed.known())
      text += fmt::format("\n[device.{}]\nflops = \"{}\"\n", name, text_of(speed.flops, Dimension::flops)) +
              efficiency_lines(speed.products, speed.convolutions);
  return text;
}

}  // namespace

std::string to_toml(const Cluster& cluster) {
  const bool several = cluster.hosts > 1 || cluster.devices == 1, shared = cluster.devices > 1;
  std::string text =
      fmt::format("[cluster]\nname = \"{}\"\nhosts = {}\ntopology = \"{}\"\n", cluster.name, cluster.hosts, name_of(cluster.topology));
  if (!cluster.sides.empty()) text += fmt::format("sides = [{}]\n", fmt::join(cluster.sides, ", "));
  if (cluster.oversubscription != 1) text += fmt::format("oversubscription = {}\n", cluster.oversubscription);
  if (several) text += fmt::format("link = \"{}\"\n", cluster.between.name);
  text += fmt::format("\n[host]\ndevices = {}\nrails = {}\n", cluster.devices, cluster.rails);
  if (shared) text += fmt::format("link = \"{}\"\n", cluster.inside.name);
  text += device_toml(cluster.device);
  if (shared) text += link_toml(cluster.inside);
  if (several && (!shared || cluster.between.name != cluster.inside.name)) text += link_toml(cluster.between);
  // Sections are read in the order of their names, so the names count.
  for (std::size_t i = 0; i < cluster.collectives.size(); ++i) {
    const CollectiveTimes& times = cluster.collectives[i];
    text += fmt::format("\n[collective.m{:05}]\ncollective = \"{}\"\nalgorithm = \"{}\"\nranks = {}\nper_host = {}\ntimes = \"{}\"\n", i,
                        times.collective, times.algorithm, times.ranks, times.per_host, times_text(times));
  }
  return text;
}

}  // namespace paceline::perf
