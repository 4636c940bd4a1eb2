// Asynchronous parallel, ASGD (Downpour: Dean et al. 2012): every gradient is an update of its own, and no worker waits.
#include "paceline/ps/consistency.h"
#include "paceline/ps/consistency/gathering.h"

namespace paceline::ps {

std::unique_ptr<Consistency> asp(const ConsistencyConfig&, int workers) {
  return std::make_unique<Gathering>(workers, Gathering::Manner{.group = 1, .contributors_wait = false, .cancels = false});
}

}  // namespace paceline::ps
