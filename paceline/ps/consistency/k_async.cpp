// K-async SGD (Dutta et al. 2018): gradients of K different workers make the update, whatever version they were computed on. No worker is
// cancelled; one that has contributed waits for the update, so that it computes on the newest version. K = 1 is asp.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> k_async(const ConsistencyConfig& config, int workers) {
  return std::make_unique<Gathering>(workers,
                                     Gathering::Manner{.group = group_of(config, workers), .contributors_wait = true, .cancels = false});
}

}  // namespace paceline::ps
