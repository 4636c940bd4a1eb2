#include "paceline/launch/equals.h"

#include <algorithm>

namespace paceline::launch {

/// Of several that ended at once, one that was killed is the cause: the others noticed.
void Equals::judge(const std::vector<Rank*>& ended) {
  if (cause_ != nullptr) return;
  for (const Rank* rank : ended)
    if (failed(*rank) && (cause_ == nullptr || (rank->exit->signal != 0 && cause_->exit->signal == 0))) cause_ = rank;
  if (cause_ != nullptr) stop_after(job().grace);
}

Ending Equals::ending() const {
  const bool all_good = std::ranges::all_of(ranks(), [](const Rank& rank) { return rank.exit->good(); });
  const bool all_stopped = std::ranges::all_of(ranks(), [](const Rank& rank) { return rank.exit->good() || rank.exit->code == kStopped; });
  if (all_stopped) return ended_with(all_good ? 0 : kStopped);
  if (cause_ == nullptr) return ended_as_told();
  return failed_with(*cause_, cause_->end() + (ranks().size() > 1 ? "; the others were stopped" : ""));
}

}  // namespace paceline::launch
