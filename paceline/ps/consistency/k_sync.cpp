// K-sync SGD (Dutta et al. 2018; SSGD with backup workers: Chen et al. 2016): the first K workers of a round make the update, what the
// others compute is cancelled, and all pull again. Every gradient is of the present version; K = all workers is bsp.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> k_sync(const ConsistencyConfig& config, int workers) {
  return std::make_unique<Gathering>(workers,
                                     Gathering::Manner{.group = group_of(config, workers), .contributors_wait = true, .cancels = true});
}

}  // namespace paceline::ps
