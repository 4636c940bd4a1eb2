#include "paceline/perf/closed_forms.h"

#include <bit>

namespace paceline::perf {
namespace {

double as_double(std::int64_t count) { return static_cast<double>(count); }
double ceil_lg(std::int64_t count) { return count <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(count - 1)); }
std::int64_t floor_power(std::int64_t count) { return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count))); }

/// α, seconds per byte on the link, seconds per reduced byte, ranks, bytes.
struct Terms {
  double alpha, byte, g;
  std::int64_t p;
  double n;
  double share() const { return as_double(p - 1) / as_double(p); }
};

double ring(const Terms& t) { return 2 * as_double(t.p - 1) * t.alpha + t.share() * t.n * (2 * t.byte + t.g); }
double tree(const Terms& t) { return ceil_lg(t.p) * (2 * (t.alpha + t.n * t.byte) + t.n * t.g); }

/// Ranks beyond a power of two first give their buffer to a neighbour, and get the result at the end.
double extra(const Terms& t) { return floor_power(t.p) == t.p ? 0 : 2 * (t.alpha + t.n * t.byte) + t.n * t.g; }

double recursive_doubling(const Terms& t) { return ceil_lg(floor_power(t.p)) * (t.alpha + t.n * (t.byte + t.g)) + extra(t); }

double butterfly(const Terms& t) {
  const Terms core{t.alpha, t.byte, t.g, floor_power(t.p), t.n};
  return 2 * ceil_lg(core.p) * t.alpha + core.share() * t.n * (2 * t.byte + t.g) + extra(t);
}

double torus(const Terms& t) {
  const std::vector<std::int64_t> sides = square_sides(t.p);
  return 2 * as_double(sides[0] + sides[1] - 2) * t.alpha + t.share() * t.n * (2 * t.byte + t.g);
}

/// Every rank sends a part to all other ranks at once, twice.
double direct(const Terms& t) { return 2 * t.alpha + t.share() * t.n * (2 * t.byte + t.g); }

/// Two trees that share the wires nearly evenly: up and down, with the share of the bandwidth that NCCL's trees reach.
double double_tree(const Terms& t) {
  constexpr double kReached = 0.92;
  return 2 * ceil_lg(t.p) * t.alpha + t.n * (2 * t.byte / kReached + t.g);
}

/// For messages that all cross hosts.
template <double (*formula)(const Terms&)>
double flat(const schedule::Costs& costs, std::int64_t ranks, double bytes) {
  return formula({costs.between.alpha_s, 1 / costs.between.bytes_per_s, costs.reduce_s_per_byte, ranks, bytes});
}

/// Reduce-scatter inside, a ring across, all-gather inside; the ranks of a host share its link.
double two_level(const schedule::Costs& costs, std::int64_t ranks, double bytes) {
  const std::int64_t hosts = ranks / costs.per_host;
  const Terms inside{costs.inside.alpha_s, 1 / costs.inside.bytes_per_s, costs.reduce_s_per_byte, costs.per_host, bytes};
  const Terms across{costs.between.alpha_s, 1 / costs.between.bytes_per_s, costs.reduce_s_per_byte / as_double(costs.per_host), hosts,
                     bytes};
  return (costs.per_host > 1 ? direct(inside) : 0) + (hosts > 1 ? ring(across) : 0);
}

struct Formula {
  std::string_view algorithm;
  double (*seconds)(const schedule::Costs& costs, std::int64_t ranks, double bytes);
};
constexpr Formula kFormulas[] = {
    {"ring", flat<ring>},           {"bucket", flat<ring>},   {"tree", flat<tree>},     {"recursive_doubling", flat<recursive_doubling>},
    {"butterfly", flat<butterfly>}, {"torus2d", flat<torus>}, {"direct", flat<direct>}, {"double_binary_tree", flat<double_tree>},
    {"hierarchical", two_level}};

}  // namespace

std::string_view name_of(Method method) { return method == Method::mst ? "MST" : "BKT"; }

Interconnect interconnect_of(const Cluster& cluster, Topology topology, std::int64_t ranks) {
  constexpr double kAlpha3 = 3;
  const Link& link = cluster.hosts > 1 ? cluster.between : cluster.inside;
  const bool own = topology == cluster.topology && ranks == cluster.processes() && !cluster.sides.empty();
  const double up = topology == Topology::fat_tree ? cluster.oversubscription : 1;
  // The devices of a host share its rails.
  const double bytes = cluster.hosts > 1 ? cluster.host_bytes_per_s() / as_double(cluster.devices) : link.bandwidth.value;
  return {.topology = topology,
          .ranks = ranks,
          .sides = own ? cluster.sides : square_sides(ranks),
          .alpha_s = link.latency.value,
          .alpha3_s = kAlpha3 * link.latency.value,
          .bytes_per_s = bytes / up};
}

double allreduce_seconds(Method method, const Interconnect& net, double bytes) {
  if (net.ranks <= 1) return 0;
  const bool flat = net.topology == Topology::star || net.topology == Topology::fat_tree;
  const std::vector<std::int64_t> sides = flat ? std::vector{net.ranks} : net.sides;
  const double wire = bytes / net.bytes_per_s;
  double levels = 0, hops = 0;
  for (const std::int64_t side : sides) {
    levels += ceil_lg(side);
    hops += as_double(net.topology == Topology::torus ? side - 1 : side);
  }
  if (method == Method::mst) return 2 * levels * (net.alpha_s + net.alpha3_s + wire);
  return 2 * hops * net.alpha_s + 2 * as_double(net.ranks - 1) / as_double(net.ranks) * wire;
}

std::optional<double> closed_form(std::string_view algorithm, const schedule::Costs& costs, std::int64_t ranks, double bytes) {
  if (ranks <= 1) return 0;
  for (const Formula& formula : kFormulas)
    if (formula.algorithm == algorithm) return formula.seconds(costs, ranks, bytes);
  return std::nullopt;
}

}  // namespace paceline::perf
