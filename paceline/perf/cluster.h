// A cluster as the performance model sees it: hosts with equal devices, one class of links inside a host and one between hosts, and a
// topology. Every value has a source. docs/clusters.md has the file format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/registry.h"
#include "paceline/perf/quantity.h"
#include "paceline/schedule/cost.h"

namespace paceline::perf {

enum class Topology { star, mesh, torus, fat_tree };
inline constexpr Topology kTopologies[] = {Topology::star, Topology::mesh, Topology::torus, Topology::fat_tree};
std::string_view name_of(Topology topology);

/// The block sizes of a matrix product, chosen so that blocks stay in the caches: m_c, n_c, k_c of BLIS.
struct Blocks {
  std::int64_t m = 480, n = 3072, k = 384;
  Source source = Source::standard;
  bool operator==(const Blocks&) const = default;
};

enum class Precision { fp32, tf32, bf16, fp16 };  // of matrix products
inline constexpr Precision kPrecisions[] = {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16};
std::string_view name_of(Precision precision);
/// Throws ConfigError, which suggests the nearest name.
Precision precision_named(std::string_view name);

/// The share of the peak that a product or convolution reaches, by its number of flops: measured at some sizes, interpolated linearly over
/// the logarithm of the size, and constant outside them.
struct Efficiency {
  struct Point {
    double flops = 0, share = 1;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points = {};  // by ascending flops; empty: not measured
  Source source = Source::standard;

  bool known() const { return !points.empty(); }
  double at(double flops) const;  // 1 if nothing was measured
  bool covers(double flops) const { return known() && flops >= points.front().flops && flops <= points.back().flops; }
  bool operator==(const Efficiency&) const = default;
};

/// "1 Mflop: 41%, 1 Gflop: 93% (measured)", and back. Throws ConfigError; the caller puts the key's name before the message.
Efficiency parse_efficiency(std::string_view text);
std::string text_of(const Efficiency& efficiency);

/// How fast a device multiplies in one precision.
struct Speed {
  Quantity flops;  // peak, or the highest measured speed; 0: unknown
  Efficiency products = {}, convolutions = {};

  bool known() const { return flops.value > 0; }
  /// The speed of one product or convolution of this many flops. Without measurements, convolutions count as products.
  double product_flops_per_s(double size) const { return flops.value * products.at(size); }
  double convolution_flops_per_s(double size) const { return flops.value * (convolutions.known() ? convolutions : products).at(size); }
  bool operator==(const Speed&) const = default;
};

/// A value of 0 was neither measured nor given; the functions below replace it by a default.
struct Device {
  std::string name;
  std::string kind = {};      // "cpu" or "gpu"; empty: unknown
  Quantity flops;             // γ, in fp32
  Quantity memory_bandwidth;  // μ
  Quantity memory;
  Blocks blocks;
  Efficiency products = {}, convolutions = {};  // in fp32
  Speed tf32 = {}, bf16 = {}, fp16 = {};
  Quantity launch = {};            // seconds to launch an operation
  Quantity update_bandwidth = {};  // bytes that an optimizer reads and writes per second
  Quantity reduce_bandwidth = {};  // bytes of a message that are added to a buffer per second
  Quantity page_bandwidth = {};    // of releasing and mapping memory again (parallel.zero=2 and 3); 0: that takes no time
  Quantity slowdown = {};          // of computing while a collective is in flight; 1.2: 20% longer
  Quantity host_link = {};         // parallel.offload: from a GPU to its host's memory, in each direction
  Quantity host_updates = {};      // parallel.offload: bytes that an optimizer on the host reads and writes per second

  /// That of fp32 if the precision's own is unknown.
  Speed speed(Precision precision) const;
  double update_bytes_per_s() const { return update_bandwidth.value > 0 ? update_bandwidth.value : memory_bandwidth.value; }
  /// An addition reads two numbers and writes one.
  double reduce_bytes_per_s() const { return reduce_bandwidth.value > 0 ? reduce_bandwidth.value : memory_bandwidth.value / 3; }
  Quantity host_link_or_default() const { return host_link.value > 0 ? host_link : Quantity{16e9}; }           // PCIe 3.0 ×16
  Quantity host_updates_or_default() const { return host_updates.value > 0 ? host_updates : Quantity{40e9}; }  // two memory channels
  double slowdown_factor() const { return slowdown.value > 0 ? slowdown.value : 1; }
  bool operator==(const Device&) const = default;
};

struct Link {
  std::string name;      // of its class: "nvlink"
  Quantity latency;      // α
  Quantity bandwidth;    // β, per direction while both are busy
  Quantity gap = {};     // for each further message that a rank sends at the same time; 0: none
  Quantity duplex = {};  // bandwidth of both directions together relative to one alone; 2 if each has its own wires. 0: 2

  double duplex_factor() const { return duplex.value > 0 ? duplex.value : 2; }
  bool operator==(const Link&) const = default;
};

/// The measured times of a collective at some sizes, among this many ranks of this cluster, `per_host` on each host.
struct CollectiveTimes {
  struct Point {
    double bytes = 0, seconds = 0;  // bytes: of the whole buffer, like a recipe's bucket
    bool operator==(const Point&) const = default;
  };
  std::string collective, algorithm;  // "allreduce", "ring"; "auto": as comm chooses
  std::int64_t ranks = 1, per_host = 1;
  std::vector<Point> points = {};  // by ascending bytes
  Source source = Source::standard;

  /// Interpolated linearly over both logarithms; constant below the first point, proportional beyond the last.
  double at(double bytes) const;
  bool covers(double bytes) const { return bytes >= points.front().bytes && bytes <= points.back().bytes; }
  bool operator==(const CollectiveTimes&) const = default;
};
/// "1024 B: 6 us, 1 MB: 300 us (measured)", and back. Throws ConfigError; the caller puts the key's name before the message.
void parse_times(std::string_view text, CollectiveTimes& into);
std::string times_text(const CollectiveTimes& times);

struct Cluster {
  std::string name;
  std::int64_t hosts = 1, devices = 1;  // devices: per host
  std::int64_t rails = 1;               // links of a host into the network
  Topology topology = Topology::star;
  std::vector<std::int64_t> sides;  // of a mesh or torus of all devices; empty: as square as possible
  double oversubscription = 1;      // fat tree: a switch's bandwidth downwards relative to that upwards
  Device device;
  Link inside, between;                           // equal if there is one host, or one device per host
  std::vector<CollectiveTimes> collectives = {};  // measured ones; all others are costed by the links

  std::int64_t processes() const { return hosts * devices; }
  /// The bandwidth of a host into the network: that of all its rails.
  double host_bytes_per_s() const { return between.bandwidth.value * static_cast<double>(rails); }
  bool operator==(const Cluster&) const = default;
};

/// The sides of a mesh of this many ranks, as square as divisors allow: 25 × 40 for 1000.
std::vector<std::int64_t> square_sides(std::int64_t ranks);

/// For schedule/cost.h. Data that must be held is written and read once more.
schedule::Costs costs_of(const Cluster& cluster);

/// Seconds of a collective that was measured with these numbers of ranks and hosts; nullopt if it was not.
std::optional<double> measured_seconds(const Cluster& cluster, std::string_view collective, std::string_view algorithm, std::int64_t ranks,
                                       std::int64_t per_host, double bytes);

/// The built-in clusters, from public data sheets.
std::span<const Entry<Cluster (*)()>> clusters();

/// Parses the text of a cluster file. Throws ConfigError with `source`, the line and the key.
Cluster read_cluster(const std::string& text, const std::string& source);
/// A built-in cluster by its key, or the cluster of a file.
Cluster find_cluster(const std::string& name_or_file);
/// The text of a cluster file, from which read_cluster() returns the same cluster.
std::string to_toml(const Cluster& cluster);

}  // namespace paceline::perf
