#include "paceline/perf/placement.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::perf {

using Axis = schedule::Action::Axis;

namespace {

/// The cost of a further message that leaves at the same time, if it was not measured: a sixth of the first, as comm assumes
/// (comm/tuning.cpp). Without it, a thousand messages at once would cost no more than one.
constexpr double kGapShare = 1.0 / 6;

schedule::Costs costs_with_gaps(const Cluster& cluster) {
  schedule::Costs costs = costs_of(cluster);
  for (schedule::Link* link : {&costs.inside, &costs.between})
    if (link->gap_s == 0) link->gap_s = kGapShare * link->alpha_s;
  return costs;
}

/// β is the bandwidth of one direction while the other is busy as well. If both share the wires, a message that has them to itself is
/// faster.
schedule::Link one_way(schedule::Link link, const Link& of) {
  link.bytes_per_s *= 2 / of.duplex_factor();
  return link;
}

}  // namespace

Placement::Placement(const Cluster& cluster, const schedule::ProgramSettings& mesh)
    : cluster_(cluster),
      data_(mesh.data),
      pipeline_(mesh.pipeline),
      tensor_(mesh.tensor),
      used_(std::min(cluster.devices, static_cast<std::int64_t>(mesh.data) * mesh.pipeline * mesh.tensor)) {
  if (ranks() > cluster.processes())
    throw ConfigError(fmt::format("a mesh of data={} pipeline={} tensor={} has {}; cluster {} has {} ({} of {})", data_, pipeline_, tensor_,
                                  counted(ranks(), "rank"), cluster.name, counted(cluster.processes(), "device"),
                                  counted(cluster.hosts, "host"), cluster.devices));
}

int Placement::size(Axis axis) const { return axis == Axis::pipeline ? pipeline_ : axis == Axis::tensor ? tensor_ : data_; }

std::int64_t Placement::stride(Axis axis) const {
  if (axis == Axis::tensor) return 1;
  return axis == Axis::data ? tensor_ : static_cast<std::int64_t>(tensor_) * data_;
}

std::int64_t Placement::together(Axis axis) const { return std::clamp<std::int64_t>(used_ / stride(axis), 1, size(axis)); }

bool Placement::crosses_hosts(Axis axis) const {
  if (axis == Axis::server) return cluster_.hosts > 1;
  return together(axis) < size(axis);
}

schedule::Link Placement::rails(double sharing) const {
  const double up = cluster_.topology == Topology::fat_tree ? cluster_.oversubscription : 1;
  schedule::Link link = costs_with_gaps(cluster_).between;
  link.bytes_per_s /= sharing * up;
  return link;
}

schedule::Costs Placement::costs(Axis axis) const {
  schedule::Costs costs = costs_with_gaps(cluster_);
  const std::int64_t near = together(axis);
  costs.per_host = static_cast<int>(near);
  costs.between = rails(static_cast<double>(used_) / static_cast<double>(near));
  return costs;
}

double Placement::contention(Axis axis) const {
  const bool torus = cluster_.topology == Topology::torus;
  if ((cluster_.topology != Topology::mesh && !torus) || !crosses_hosts(axis)) return 1;
  const bool all = size(axis) == cluster_.processes() && !cluster_.sides.empty();
  const std::vector<std::int64_t> sides = all ? cluster_.sides : square_sides(size(axis));
  return std::max(1.0, static_cast<double>(std::ranges::max(sides)) / (torus ? 8 : 4));
}

schedule::Link Placement::between_stages(int stage, int peer) const {
  const std::int64_t step = stride(Axis::pipeline);
  // Stages that do not fill hosts evenly: the slowest pair of ranks counts.
  bool leaves = false;
  for (const std::int64_t rank : {std::int64_t{0}, step - 1})
    leaves = leaves || (stage * step + rank) / used_ != (peer * step + rank) / used_;
  return leaves ? one_way(rails(static_cast<double>(std::min(used_, step))), cluster_.between)
                : one_way(costs_with_gaps(cluster_).inside, cluster_.inside);
}

schedule::Link Placement::to_neighbour(Axis axis, int places) const {
  const std::int64_t near = together(axis), far = std::abs(static_cast<std::int64_t>(places)) % std::max(size(axis), 1);
  if (near >= size(axis) || far == 0) return costs_with_gaps(cluster_).inside;
  // How many ranks of a host have their neighbour on another host.
  const std::int64_t groups = used_ / near, leaving = std::min({far, near, size(axis) - far}) * groups;
  return rails(static_cast<double>(std::max<std::int64_t>(leaving, 1)));
}

schedule::Link Placement::to_server() const {
  return cluster_.hosts > 1 ? one_way(rails(static_cast<double>(used_)), cluster_.between) : server_link();
}

schedule::Link Placement::server_link() const {
  return cluster_.hosts > 1 ? one_way(rails(1), cluster_.between) : one_way(costs_with_gaps(cluster_).inside, cluster_.inside);
}

Source Placement::source(Axis axis) const {
  const Link& link = crosses_hosts(axis) ? cluster_.between : cluster_.inside;
  return std::max(link.latency.source, link.bandwidth.source);
}

}  // namespace paceline::perf
