// Ranks on the hosts of a cluster, and the links between them: a port for each rank inside its host, a link of each host into the network,
// switches above groups of hosts. Any host's link and any switch may be slower than the others.
//
// Ranks lie as in a mesh (comm/mesh.h): tensor innermost, then data, pipeline outermost. Servers are separate hosts, numbered after the
// workers'.
#pragma once

#include <vector>

#include "paceline/perf/cluster.h"
#include "paceline/schedule/program.h"
#include "paceline/sim/network.h"

namespace paceline::sim {

/// A deviation from the cluster's description. Numbers count from 0.
struct Faults {
  struct Slow {
    std::int64_t number = 0;
    double factor = 1;  // its bandwidth is divided by this
  };
  std::vector<Slow> hosts = {}, switches = {};
};

struct Place {
  int data = 0, pipeline = 0, tensor = 0;
};

class ClusterMap {
 public:
  /// `hosts_per_switch` 0: a single switch that is never a bottleneck, unless the cluster is an oversubscribed fat tree, whose switches
  /// then have kHostsPerSwitch. ConfigError if the cluster has fewer devices than the mesh, or a fault names a host or switch that does not
  /// exist.
  ClusterMap(const perf::Cluster& cluster, int data, int pipeline, int tensor, int servers, std::int64_t hosts_per_switch,
             const Faults& faults = {});
  static constexpr std::int64_t kHostsPerSwitch = 16;

  int ranks() const { return data_ * pipeline_ * tensor_; }
  int servers() const { return servers_; }
  int hosts() const { return static_cast<int>(host_factor_.size()); }  // including servers
  int switches() const { return static_cast<int>(switch_factor_.size()); }
  Place place_of(int rank) const { return {rank / tensor_ % data_, rank / tensor_ / data_, rank % tensor_}; }
  int rank_at(const Place& place) const { return (place.pipeline * data_ + place.data) * tensor_ + place.tensor; }
  int host_of(int rank) const { return rank / devices_; }
  int host_of_server(int server) const { return workers_hosts_ + server; }
  int switch_of(int host) const { return host / static_cast<int>(per_switch_); }

  /// Groups of an axis, numbered from 0, and their members, in the order of the axis.
  int groups(schedule::Action::Axis axis) const { return ranks() / size(axis); }
  int size(schedule::Action::Axis axis) const;
  int group_of(schedule::Action::Axis axis, int rank) const;
  std::vector<int> members(schedule::Action::Axis axis, int group) const;

  const perf::Cluster& cluster() const { return cluster_; }
  double port_bytes_per_s() const { return cluster_.inside.bandwidth.value; }
  double host_bytes_per_s(int host) const;
  double switch_bytes_per_s(int number) const;  // in each direction
  bool has_switches() const { return switches() > 1; }
  /// Whether all hosts are alike, with no bottleneck above them.
  bool is_even() const { return even_ && !has_switches(); }

  /// The links of the network, in the order of their numbers there.
  void add_links(Network& network) const;
  std::size_t port_link(int rank, bool out) const { return 2 * static_cast<std::size_t>(rank) + out; }
  std::size_t host_link(int host, bool out) const { return 2 * static_cast<std::size_t>(ranks() + host) + out; }
  std::size_t switch_link(int number, bool out) const { return 2 * static_cast<std::size_t>(ranks() + hosts() + number) + out; }

  /// The cost of a message between two hosts, or between two ranks of one.
  struct Way {
    double latency_s = 0, bytes_per_s = 0;
    std::vector<Use> uses;
  };
  Way between_ranks(int from, int to) const;
  Way between_hosts(int from, int to) const;

 private:
  perf::Cluster cluster_;
  int data_, pipeline_, tensor_, servers_, devices_, workers_hosts_ = 1;
  std::int64_t per_switch_ = 1;
  std::vector<double> host_factor_, switch_factor_;  // slow-down factors
  bool even_;                                        // true: no factor differs from 1
};

}  // namespace paceline::sim
