// Bulk synchronous parallel (Valiant 1990), SSGD: a barrier. One update with the mean of the gradients of all present workers; a worker
// that has contributed does not pull until then, so no gradient is ever stale. A worker that joins in the middle of a round takes part in
// it.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> bsp(const ConsistencyConfig&, int workers) {
  return std::make_unique<Gathering>(workers, Gathering::Manner{.group = kEverybody, .contributors_wait = true, .cancels = false});
}

}  // namespace paceline::ps
