// This machine, or the ranks of a job, as a cluster of the performance model.
#pragma once

#include "paceline/measure/call_timer.h"
#include "paceline/perf/cluster.h"

namespace paceline::measure {

struct ProbeOptions {
  c10::Device device{c10::kCPU};
  std::string name = "here";  // of the cluster
  std::vector<perf::Precision> precisions = {perf::Precision::fp32};
  double seconds = 0.05;                    // of one point
  double largest_product = 2.2e9;           // flops
  std::int64_t largest_message = 32 << 20;  // bytes
};

/// Every rank measures at the same time, so a device is what each of them has of its host. Links that no two ranks are joined by are
/// defaults. Collective; every rank gets the same.
perf::Cluster probe(const Rank& rank, const ProbeOptions& options, const Clock& clock);

/// Collectives alone, among these ranks: more of them than there are devices take turns. Collective.
std::vector<perf::CollectiveTimes> probe_collectives(const Rank& rank, const ProbeOptions& options, const Clock& clock);

}  // namespace paceline::measure
