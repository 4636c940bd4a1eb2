// Where the ranks of a mesh lie on a cluster, and so which links each axis uses: the tensor axis innermost, then data, then pipeline
// (comm/mesh.h), host after host.
//
// The groups of an axis work at the same time. Those of a host share its rails, so that each has its part of them: with t = 4 tensor ranks
// on a host of 8, four allreduces of gradients leave through it at once.
#pragma once

#include "paceline/perf/cluster.h"
#include "paceline/schedule/program.h"

namespace paceline::perf {

class Placement {
 public:
  /// ConfigError if the cluster has fewer devices than the mesh has ranks.
  Placement(const Cluster& cluster, const schedule::ProgramSettings& mesh);

  int size(schedule::Action::Axis axis) const;
  /// For a collective among the ranks of one group; per_host is the number of them that share a host.
  schedule::Costs costs(schedule::Action::Axis axis) const;
  /// How many messages share a wire of a mesh or torus where everybody sends far away: a quarter of its longest side, an eighth where the
  /// wires close to rings (the traffic over the middle of the grid); 1 on other topologies.
  double contention(schedule::Action::Axis axis) const;
  /// For a message between two stages of the pipeline, all whose ranks send at once.
  schedule::Link between_stages(int stage, int peer) const;
  /// For a message to the rank this many places on along an axis, which all ranks send.
  schedule::Link to_neighbour(schedule::Action::Axis axis, int places) const;
  /// Of a worker's way to a parameter server, where all workers of a host use it.
  schedule::Link to_server() const;
  /// Of a server, which is a host of its own, or a process beside the workers where there is one host.
  schedule::Link server_link() const;

  /// Whether any group of this axis leaves a host.
  bool crosses_hosts(schedule::Action::Axis axis) const;
  std::int64_t ranks() const { return static_cast<std::int64_t>(data_) * pipeline_ * tensor_; }
  /// How well the values of the links are known that this axis uses.
  Source source(schedule::Action::Axis axis) const;

 private:
  std::int64_t stride(schedule::Action::Axis axis) const;
  /// Neighbours of a group that share a host.
  std::int64_t together(schedule::Action::Axis axis) const;
  /// The part of a host's rails that one of `sharing` users has.
  schedule::Link rails(double sharing) const;

  const Cluster& cluster_;
  int data_, pipeline_, tensor_;
  std::int64_t used_;  // devices of a host
};

}  // namespace paceline::perf
