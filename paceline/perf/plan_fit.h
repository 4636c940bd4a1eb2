// What to say where no plan can be: workers that cannot share the batch, or a network that fits no device.
#pragma once

#include "paceline/perf/plan.h"

namespace paceline::perf {

struct SmallestNeed {
  std::int64_t bytes = 0;
  Choice choice;
};
/// The choice of the question's workers whose largest rank needs least. Nothing where they cannot share the batch.
std::optional<SmallestNeed> smallest_need(const PlanQuestion& question);
/// The fewest devices of the cluster's kind, by doubling, on which something fits; nothing up to kMostDevices.
std::optional<std::int64_t> smallest_cluster(const PlanQuestion& question);
inline constexpr std::int64_t kMostDevices = 1 << 16;

std::string no_mesh_message(const PlanQuestion& question);
std::string no_fit_message(const PlanQuestion& question);

}  // namespace paceline::perf
