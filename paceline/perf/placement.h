// The placement of a mesh's ranks on a cluster, and thus the links that each axis uses: the tensor axis innermost, then data, then pipeline
// (comm/mesh.h), host after host.
//
// All groups of an axis communicate at the same time. Those of a host share its rails evenly: with t = 4 tensor ranks on a host of 8, four
// allreduces of gradients leave the host at once.
#pragma once

#include "paceline/perf/cluster.h"
#include "paceline/schedule/program.h"

namespace paceline::perf {

class Placement {
 public:
  /// ConfigError if the cluster has fewer devices than the mesh has ranks.
  Placement(const Cluster& cluster, const schedule::ProgramSettings& mesh);

  int size(schedule::Action::Axis axis) const;
  /// The costs of a collective among the ranks of one group; per_host is how many of them share a host.
  schedule::Costs costs(schedule::Action::Axis axis) const;
  /// How many messages share a wire of a mesh or torus if all ranks send to distant ones: a quarter of its longest side on a mesh, an
  /// eighth on a torus (the traffic across the middle of the grid); 1 on other topologies.
  double contention(schedule::Action::Axis axis) const;
  /// The link of a message between two stages of the pipeline, if all their ranks send at once.
  schedule::Link between_stages(int stage, int peer) const;
  /// The link of a message to the rank this many places further along an axis, if all ranks send one.
  schedule::Link to_neighbour(schedule::Action::Axis axis, int places) const;
  /// The link from a worker to a parameter server, if all workers of a host use it at once.
  schedule::Link to_server() const;
  /// The link of a server, which has its own host or, if there is only one host, is a process next to the workers.
  schedule::Link server_link() const;

  /// Whether any group of this axis leaves a host.
  bool crosses_hosts(schedule::Action::Axis axis) const;
  std::int64_t ranks() const { return static_cast<std::int64_t>(data_) * pipeline_ * tensor_; }
  /// How reliable the values of this axis's links are.
  Source source(schedule::Action::Axis axis) const;

 private:
  std::int64_t stride(schedule::Action::Axis axis) const;
  /// How many neighbours of a group share a host.
  std::int64_t together(schedule::Action::Axis axis) const;
  /// The part of a host's rails that each of `sharing` users gets.
  schedule::Link rails(double sharing) const;

  const Cluster& cluster_;
  int data_, pipeline_, tensor_;
  std::int64_t used_;  // devices of a host
};

}  // namespace paceline::perf
