// ComputeTimes by a device's roofline: matrix products by their flops and the traffic of their blocks (roofline.h), everything else by the
// bytes that it moves, each operation with its launch.
#pragma once

#include <map>

#include "paceline/graph/graph.h"
#include "paceline/perf/compute_times.h"
#include "paceline/perf/roofline.h"

namespace paceline::perf {

struct RooflineSettings {
  int tensor = 1;                  // ranks that share the network's layers
  bool sequence = false;           // and its positions
  double product_bytes = 4;        // of an operand: 4, or 2 in fp16 and bf16
  double storage_bytes = 4;        // of a parameter and its gradient
  int moments = 2;                 // fp32 tensors of the optimizer
  bool offload = false;            // masters and moments lie in host memory
  double host_bytes_per_s = 16e9;  // offload: of the way between host and device
  std::string compression = "none";
};

class RooflineTimes final : public ComputeTimes {
 public:
  /// ConfigError where so many ranks cannot share the network.
  RooflineTimes(const graph::Graph& graph, const Device& device, const RooflineSettings& settings = {});

  double seconds(const schedule::Action& action, std::int64_t samples) const override;
  double uncertainty() const override;

 private:
  /// Seconds of units [0, i), by phase.
  using Sums = std::array<std::vector<double>, 3>;
  const Sums& sums_for(std::int64_t samples) const;

  graph::Graph graph_;  // as one rank computes it
  Device device_;
  RooflineSettings settings_;
  mutable std::map<std::int64_t, Sums> sums_;  // by samples
};

}  // namespace paceline::perf
