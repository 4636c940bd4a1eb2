// What an allreduce costs in closed form: as the CCGRID 2019 slides print it, and as the literature gives it for the algorithms of
// schedule/. schedule/cost.h costs the lists of steps that really run; a test compares the two.
#pragma once

#include <optional>

#include "paceline/perf/cluster.h"

namespace paceline::perf {

enum class Method { mst, bkt };  // minimum spanning tree: reduce, broadcast; bucket: reduce-scatter, all-gather
inline constexpr Method kMethods[] = {Method::mst, Method::bkt};
std::string_view name_of(Method method);

/// The slides' interconnect: one class of links for all ranks.
struct Interconnect {
  Topology topology = Topology::star;
  std::int64_t ranks = 1;
  std::vector<std::int64_t> sides;  // of a mesh or torus
  double alpha_s = 0;               // α₁
  double alpha3_s = 0;              // α₃, which the slides do not define; by default three times α₁
  double bytes_per_s = 0;           // β
};
/// The interconnect of `ranks` devices of this cluster, with the given topology.
Interconnect interconnect_of(const Cluster& cluster, Topology topology, std::int64_t ranks);

/// Seconds for this many bytes:
///
///          star                                   mesh, with sides d_k
///   MST    2⌈log₂P⌉ (α₁ + α₃ + n/β)               2 Σ⌈log₂ d_k⌉ (α₁ + α₃ + n/β)
///   BKT    2Pα₁ + 2(P−1)/P · n/β                  2 Σ d_k α₁ + 2(P−1)/P · n/β
///
/// A torus has the wires that close its rings: 2 Σ(d_k − 1) α₁ for BKT. A fat tree counts as a star with the bandwidth of its upper
/// switches.
double allreduce_seconds(Method method, const Interconnect& net, double bytes);

/// Seconds of an allreduce by one of schedule/'s algorithms, if the literature has a formula for it. Every rank is on its own host, except
/// with `hierarchical`, where a host has costs.per_host ranks.
std::optional<double> closed_form(std::string_view algorithm, const schedule::Costs& costs, std::int64_t ranks, double bytes);

}  // namespace paceline::perf
