// K-batch-async SGD (Dutta et al. 2018): any K minibatches make the update. No worker is cancelled or waits: it pulls again at
// once, and gets the previous version if the update is not complete.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> k_batch_async(const ConsistencyConfig& config, int workers) {
  return std::make_unique<Gathering>(workers,
                                     Gathering::Manner{.group = group_of(config, workers), .contributors_wait = false, .cancels = false});
}

}  // namespace paceline::ps
