// Measures this machine, or the ranks of a job, as a cluster for the performance model.
#pragma once

#include "paceline/measure/call_timer.h"
#include "paceline/perf/cluster.h"

namespace paceline::measure {

struct ProbeOptions {
  c10::Device device{c10::kCPU};
  std::string name = "here";  // of the cluster
  std::vector<perf::Precision> precisions = {perf::Precision::fp32};
  double seconds = 0.05;                    // per data point
  double largest_product = 2.2e9;           // flops
  std::int64_t largest_message = 32 << 20;  // bytes
};

/// Every rank measures at the same time, so a device's values are each rank's share of its host. Links that connect no ranks get default
/// values. Collective; every rank gets the same result.
perf::Cluster probe(const Rank& rank, const ProbeOptions& options, const Clock& clock);

/// Measures only collectives, among these ranks; more ranks than devices take turns. Collective.
std::vector<perf::CollectiveTimes> probe_collectives(const Rank& rank, const ProbeOptions& options, const Clock& clock);

}  // namespace paceline::measure
