// A cluster as the performance model sees it: hosts of equal devices, a class of links inside a host and one between hosts, a topology.
// Every value says where it came from. docs/clusters.md has the file format.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "paceline/base/registry.h"
#include "paceline/perf/quantity.h"
#include "paceline/schedule/cost.h"

namespace paceline::perf {

enum class Topology { star, mesh, torus, fat_tree };
inline constexpr Topology kTopologies[] = {Topology::star, Topology::mesh, Topology::torus, Topology::fat_tree};
std::string_view name_of(Topology topology);

/// Sizes to which a matrix product is cut so that its parts stay in the caches: m_c, n_c, k_c of BLIS.
struct Blocks {
  std::int64_t m = 480, n = 3072, k = 384;
  Source source = Source::standard;
  bool operator==(const Blocks&) const = default;
};

struct Device {
  std::string name;
  Quantity flops;             // γ, in fp32
  Quantity memory_bandwidth;  // μ
  Quantity memory;
  Blocks blocks;
  bool operator==(const Device&) const = default;
};

struct Link {
  std::string name;    // of its class: "nvlink"
  Quantity latency;    // α
  Quantity bandwidth;  // β, in each direction
  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;
  std::int64_t hosts = 1, devices = 1;  // devices of a host
  std::int64_t rails = 1;               // links of a host into the network
  Topology topology = Topology::star;
  std::vector<std::int64_t> sides;  // of a mesh or torus of all devices; empty: as square as it can be
  double oversubscription = 1;      // fat tree: how many times more bandwidth enters a switch from below than leaves it upwards
  Device device;
  Link inside, between;  // where there is one host, or one device a host, both are the same

  std::int64_t processes() const { return hosts * devices; }
  /// What a host sends into the network each second: all its rails.
  double host_bytes_per_s() const { return between.bandwidth.value * static_cast<double>(rails); }
  bool operator==(const Cluster&) const = default;
};

/// The sides of a mesh of so many ranks, as square as divisors allow: 25 × 40 for 1000.
std::vector<std::int64_t> square_sides(std::int64_t ranks);

/// For schedule/cost.h. An addition reads two numbers and writes one; what is held is written and read once more.
schedule::Costs costs_of(const Cluster& cluster);

/// The built-in clusters, from public data sheets.
std::span<const Entry<Cluster (*)()>> clusters();

/// Of the text of a cluster file. Throws ConfigError with `source`, the line and the key.
Cluster read_cluster(const std::string& text, const std::string& source);
/// A built-in cluster by its key, or what a file says.
Cluster find_cluster(const std::string& name_or_file);
/// A cluster file that reads back to the same cluster.
std::string to_toml(const Cluster& cluster);

}  // namespace paceline::perf
