// K-batch-async SGD (Dutta et al. 2018): any K minibatches make the update. Nobody is cancelled and nobody waits: a worker pulls again at
// once, the version of before where its update is not complete.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> k_batch_async(const ConsistencyConfig& config, int workers) {
  return std::make_unique<Gathering>(workers,
                                     Gathering::Manner{.group = group_of(config, workers), .contributors_wait = false, .cancels = false});
}

}  // namespace paceline::ps
