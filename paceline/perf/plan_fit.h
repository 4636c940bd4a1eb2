// The messages if there is no plan: workers that cannot share the batch, or a network that does not fit.
#pragma once

#include "paceline/perf/plan.h"

namespace paceline::perf {

struct SmallestNeed {
  std::int64_t bytes = 0;
  Choice choice;
};
/// The choice for the question's workers whose largest rank needs the least memory. Nullopt if they cannot share the batch.
std::optional<SmallestNeed> smallest_need(const PlanQuestion& question);
/// The smallest number of the cluster's devices on which something fits; nullopt if there is none up to kMostDevices.
std::optional<std::int64_t> smallest_cluster(const PlanQuestion& question);
inline constexpr std::int64_t kMostDevices = 1 << 16;

std::string no_mesh_message(const PlanQuestion& question);
std::string no_fit_message(const PlanQuestion& question);

}  // namespace paceline::perf
