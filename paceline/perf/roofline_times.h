// ComputeTimes by a device's roofline: matrix products by their flops, at the speed measured for products of their size or by the traffic
// of their blocks (roofline.h); everything else by the bytes that it moves. Operations are launched ahead of the device, so a unit's pass
// takes as long as its launches or as the device, whichever is longer.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "paceline/graph/graph.h"
#include "paceline/perf/cluster.h"
#include "paceline/perf/compute_times.h"

namespace paceline::perf {

struct RooflineSettings {
  int tensor = 1;         // ranks that share the network's layers
  bool sequence = false;  // and its positions
  Precision precision = Precision::fp32;
  double storage_bytes = 4;     // of a parameter
  bool fp32_gradients = false;  // gradients are stored in fp32; otherwise in the type of the parameters
  int moments = 2;              // fp32 tensors of the optimizer
  bool offload = false;         // masters and moments are in host memory, and are updated there
  std::string compression = "none";

  double gradient_bytes() const { return fp32_gradients ? 4 : storage_bytes; }
};

class RooflineTimes final : public ComputeTimes {
 public:
  /// ConfigError if this many ranks cannot share the network.
  RooflineTimes(const graph::Graph& graph, const Device& device, const RooflineSettings& settings = {});
  ~RooflineTimes() override;

  double seconds(const schedule::Action& action, std::int64_t samples) const override;
  double idle_seconds(const schedule::Action& action, std::int64_t samples) const override;
  Doubt doubt(std::span<const std::int64_t> samples) const override;

 private:
  /// Seconds of units [0, i), by phase, and the part of them in which the device waits for the host.
  struct Sums {
    std::array<std::vector<double>, 3> all, idle;
    double unmeasured = 0;  // share of the products' time at sizes that were not measured
  };
  const Sums& sums_for(std::int64_t samples) const;
  double update_seconds(double elements) const;

  struct Network;
  std::unique_ptr<Network> network_;
  Device device_;
  RooflineSettings settings_;
  mutable std::map<std::int64_t, Sums> sums_;  // by samples
};

/// Bytes that an update of one element reads and writes: parameter, gradient and moments, and the fp32 master if storage has fewer bits.
double update_bytes(double storage_bytes, double gradient_bytes, int moments);

}  // namespace paceline::perf
