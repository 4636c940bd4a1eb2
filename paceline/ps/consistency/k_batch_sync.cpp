// K-batch-sync SGD (Dutta et al. 2018): the first K minibatches of a round make the update, from whomever: a fast worker pulls the same
// version again and contributes several. What is computed when the K-th comes is cancelled. Every gradient is of the present version.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> k_batch_sync(const ConsistencyConfig& config, int workers) {
  return std::make_unique<Gathering>(workers,
                                     Gathering::Manner{.group = group_of(config, workers), .contributors_wait = false, .cancels = true});
}

}  // namespace paceline::ps
