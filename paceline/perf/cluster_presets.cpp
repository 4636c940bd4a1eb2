// The built-in clusters. Values marked spec are from public data sheets, which are named next to them; latencies, which no data sheet has,
// are defaults.
#include "paceline/perf/cluster.h"

namespace paceline::perf {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e6;

Quantity spec(double value) { return {value, Source::spec}; }
Quantity standard(double value) { return {value, Source::standard}; }
/// Data sheets of networks count bits.
Quantity gigabits(double value) { return spec(value * kGiga / 8); }

// The tables of the CCGRID 2019 slides: dual-rail EDR, one Xeon Platinum 8180M a node. 8,960 Gflop/s counts two threads of each of its 28
// cores; 64 flop/cycle × 2.5 GHz × 28 cores are 4,480.
Cluster skylake() {
  const Link edr{.name = "infiniband", .latency = spec(0.5 / kMicro), .bandwidth = gigabits(200)};
  return {.name = "skylake",
          .hosts = 1000,
          .sides = {},
          .device = {.name = "xeon_8180m",
                     .kind = "cpu",
                     .flops = spec(8960 * kGiga),
                     .memory_bandwidth = spec(128 * kGiga),
                     .memory = spec(256 * kGiga),
                     .blocks = {480, 3072, 384, Source::spec}},
          .inside = edr,
          .between = edr};
}

/// Hosts of one kind of GPU.
struct GpuHosts {
  const char *name, *device;
  std::int64_t hosts, devices, rails;
  double tflops, memory_bandwidth, memory;  // Tflop/s in fp32, GB/s, GB
  double nvlink, network;                   // nvlink: GB/s in one direction; network: Gb/s of one rail
  double tf32 = 0, bf16 = 0, fp16 = 0;      // Tflop/s of dense products, in tensor cores if there are any; 0: no faster than fp32
  double host_link = 16;                    // GB/s in one direction: PCIe 3.0 ×16
};

// Their products were not measured, so peaks are assumed; the blocks are large enough for tensor cores to reach them.
Cluster gpu_hosts(const GpuHosts& of) {
  const auto speed = [](double tflops) { return tflops > 0 ? Speed{.flops = spec(tflops * kTera)} : Speed{}; };
  return {.name = of.name,
          .hosts = of.hosts,
          .devices = of.devices,
          .rails = of.rails,
          .topology = Topology::fat_tree,
          .sides = {},
          .device = {.name = of.device,
                     .kind = "gpu",
                     .flops = spec(of.tflops * kTera),
                     .memory_bandwidth = spec(of.memory_bandwidth * kGiga),
                     .memory = spec(of.memory * kGiga),
                     .blocks = {1024, 3072, 1024},
                     .tf32 = speed(of.tf32),
                     .bf16 = speed(of.bf16),
                     .fp16 = speed(of.fp16),
                     .host_link = spec(of.host_link * kGiga),
                     .host_updates = standard(40 * kGiga)},
          .inside = {.name = "nvlink", .latency = standard(3 / kMicro), .bandwidth = spec(of.nvlink * kGiga)},
          .between = {.name = "network", .latency = standard(5 / kMicro), .bandwidth = gigabits(of.network)}};
}

// Tesla P100 SXM2 data sheet; hosts and network of Horovod's paper (128 servers of four Pascal GPUs, 25 Gb/s). No data sheet has the speed
// of convolutions: these are fitted to the throughputs of whole networks that TensorFlow published for one P100 (tf_cnn_benchmarks, 2017),
// and exceed the peak where Winograd's algorithm needs fewer multiplications than are counted.
Cluster p100() {
  Cluster cluster = gpu_hosts({"p100", "p100_sxm2", 128, 4, 1, 10.6, 732, 16, 80, 25, 0, 0, 21.2});
  cluster.device.convolutions = {.points = {{1e9, 0.35}, {10e9, 0.5}, {200e9, 1.6}}, .source = Source::standard};
  return cluster;
}
// V100 SXM2 data sheet, DGX-1: four EDR adapters.
Cluster v100() { return gpu_hosts({"v100", "v100_sxm2", 32, 8, 4, 15.7, 900, 32, 150, 100, 0, 0, 125}); }
// H100 and H200 SXM data sheets, DGX: eight adapters of 400 Gb/s; PCIe 5.0 ×16.
Cluster h100() { return gpu_hosts({"h100", "h100_sxm", 128, 8, 8, 67, 3350, 80, 450, 400, 494.5, 989, 989, 64}); }
Cluster h200() { return gpu_hosts({"h200", "h200_sxm", 128, 8, 8, 67, 4800, 141, 450, 400, 494.5, 989, 989, 64}); }

/// A single host whose devices are the cores of its processor, each with its share of the memory.
Cluster cores(const char* name, std::int64_t count, Quantity flops, Quantity bandwidth, Quantity memory) {
  const Link shared{.name = "memory", .latency = standard(1 / kMicro), .bandwidth = standard(10 * kGiga)};
  return {.name = name,
          .devices = count,
          .sides = {},
          .device = {.name = "core", .kind = "cpu", .flops = flops, .memory_bandwidth = bandwidth, .memory = memory, .blocks = {}},
          .inside = shared,
          .between = shared};
}

// Core i7-1185G7 at its base of 3 GHz: 32 flop/cycle and core; LPDDR4x-4267 on 128 bits, 68.3 GB/s; 16 GB.
Cluster laptop() { return cores("laptop", 4, spec(96 * kGiga), spec(68.272 / 4 * kGiga), spec(4 * kGiga)); }
Cluster two_cores() { return cores("two_cores", 2, standard(96 * kGiga), standard(12.8 * kGiga), standard(4 * kGiga)); }

constexpr Entry<Cluster (*)()> kClusters[] = {
    {"skylake", "the CCGRID 2019 study's: 1,000 nodes of one Xeon 8180M, 200 Gb/s, a star", skylake},
    {"p100", "128 hosts of four P100, NVLink inside, 25 Gb/s between", p100},
    {"v100", "32 hosts of eight V100, NVLink inside, four links of 100 Gb/s", v100},
    {"h100", "128 hosts of eight H100, NVLink inside, eight links of 400 Gb/s", h100},
    {"h200", "128 hosts of eight H200, NVLink inside, eight links of 400 Gb/s", h200},
    {"laptop", "four cores of a laptop that share memory", laptop},
    {"two_cores", "two cores that share memory, by rules of thumb", two_cores},
};

}  // namespace

std::span<const Entry<Cluster (*)()>> clusters() { return kClusters; }

}  // namespace paceline::perf
