#include "paceline/sim/cluster_map.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::sim {
namespace {

using Axis = schedule::Action::Axis;

void slow_down(std::vector<double>& factors, const std::vector<Faults::Slow>& slow, const char* what) {
  for (const Faults::Slow& one : slow) {
    if (one.number < 0 || one.number >= std::ssize(factors))
      throw ConfigError(fmt::format("there is no {} {}; the {} of this job are numbered from 0", what, one.number, factors.size()));
    if (!(one.factor >= 1)) throw ConfigError(fmt::format("{} {}: the factor must be at least 1, not {}", what, one.number, one.factor));
    factors[static_cast<std::size_t>(one.number)] *= one.factor;
  }
}

}  // namespace

ClusterMap::ClusterMap(const perf::Cluster& cluster, int data, int pipeline, int tensor, int servers, std::int64_t hosts_per_switch,
                       const Faults& faults)
    : cluster_(cluster),
      data_(data),
      pipeline_(pipeline),
      tensor_(tensor),
      servers_(servers),
      devices_(static_cast<int>(cluster.devices)),
      even_(faults.hosts.empty() && faults.switches.empty()) {
  if (ranks() > cluster.processes())
    throw ConfigError(fmt::format("{} ranks (data {} × pipeline {} × tensor {}) do not fit on cluster {}, which has {} devices", ranks(),
                                  data, pipeline, tensor, cluster.name, cluster.processes()));
  workers_hosts_ = (ranks() + devices_ - 1) / devices_;
  host_factor_.assign(static_cast<std::size_t>(workers_hosts_ + servers), 1.0);
  const bool narrow = cluster.topology == perf::Topology::fat_tree && cluster.oversubscription > 1;
  per_switch_ = hosts_per_switch > 0 ? hosts_per_switch : narrow ? kHostsPerSwitch : hosts();
  switch_factor_.assign((host_factor_.size() + static_cast<std::size_t>(per_switch_) - 1) / static_cast<std::size_t>(per_switch_), 1.0);
  slow_down(host_factor_, faults.hosts, "host");
  slow_down(switch_factor_, faults.switches, "switch");
}

int ClusterMap::size(Axis axis) const {
  switch (axis) {
    case Axis::data: return data_;
    case Axis::pipeline: return pipeline_;
    case Axis::tensor: return tensor_;
    case Axis::server: break;
  }
  return ranks();
}

int ClusterMap::group_of(Axis axis, int rank) const {
  const Place at = place_of(rank);
  switch (axis) {
    case Axis::data: return at.pipeline * tensor_ + at.tensor;
    case Axis::pipeline: return at.data * tensor_ + at.tensor;
    case Axis::tensor: return at.pipeline * data_ + at.data;
    case Axis::server: break;
  }
  return 0;
}

std::vector<int> ClusterMap::members(Axis axis, int group) const {
  std::vector<int> ranks_of;
  for (int i = 0; i < size(axis); ++i) {
    switch (axis) {
      case Axis::data: ranks_of.push_back(rank_at({i, group / tensor_, group % tensor_})); break;
      case Axis::pipeline: ranks_of.push_back(rank_at({group / tensor_, i, group % tensor_})); break;
      case Axis::tensor: ranks_of.push_back(rank_at({group % data_, group / data_, i})); break;
      case Axis::server: ranks_of.push_back(i); break;
    }
  }
  return ranks_of;
}

double ClusterMap::host_bytes_per_s(int host) const { return cluster_.host_bytes_per_s() / host_factor_[static_cast<std::size_t>(host)]; }

double ClusterMap::switch_bytes_per_s(int number) const {
  return static_cast<double>(per_switch_) * cluster_.host_bytes_per_s() / std::max(1.0, cluster_.oversubscription) /
         switch_factor_[static_cast<std::size_t>(number)];
}

void ClusterMap::add_links(Network& network) const {
  for (int i = 0; i < 2 * ranks(); ++i) network.add_link(port_bytes_per_s());
  for (int i = 0; i < 2 * hosts(); ++i) network.add_link(host_bytes_per_s(i / 2));
  for (int i = 0; i < 2 * switches(); ++i) network.add_link(switch_bytes_per_s(i / 2));
}

ClusterMap::Way ClusterMap::between_ranks(int from, int to) const {
  if (host_of(from) != host_of(to)) return between_hosts(host_of(from), host_of(to));
  return {.latency_s = cluster_.inside.latency.value,
          .bytes_per_s = port_bytes_per_s(),
          .uses = {{port_link(from, true), 1}, {port_link(to, false), 1}}};
}

ClusterMap::Way ClusterMap::between_hosts(int from, int to) const {
  Way way{.latency_s = cluster_.between.latency.value, .bytes_per_s = 0, .uses = {{host_link(from, true), 1}, {host_link(to, false), 1}}};
  way.bytes_per_s = std::min(host_bytes_per_s(from), host_bytes_per_s(to));
  if (switch_of(from) != switch_of(to)) {
    const int up = switch_of(from), down = switch_of(to);
    way.uses.push_back({switch_link(up, true), 1}), way.uses.push_back({switch_link(down, false), 1});
    way.bytes_per_s = std::min({way.bytes_per_s, switch_bytes_per_s(up), switch_bytes_per_s(down)});
    way.uses[2].share = way.bytes_per_s / switch_bytes_per_s(up), way.uses[3].share = way.bytes_per_s / switch_bytes_per_s(down);
  }
  way.uses[0].share = way.bytes_per_s / host_bytes_per_s(from), way.uses[1].share = way.bytes_per_s / host_bytes_per_s(to);
  return way;
}

}  // namespace paceline::sim
