#include "paceline/launch/equals.h"

#include <algorithm>

#include "paceline/base/program.h"

namespace paceline::launch {

/// Of several that ended at once, one that was killed is the cause: the others noticed.
void Equals::judge(const std::vector<Rank*>& ended) {
  if (cause_ != nullptr) return;
  for (const Rank* rank : ended)
    if (failed(*rank) && (cause_ == nullptr || (rank->exit->signal != 0 && cause_->exit->signal == 0))) cause_ = rank;
  if (cause_ != nullptr) stop_after(job().grace);
}

Ending Equals::ending() const {
  const auto good = [](const Rank& rank) { return rank.exit->good(); };
  const auto stopped = [](const Rank& rank) { return rank.exit->code == kStopped; };
  if (std::ranges::all_of(ranks(), good)) return ended_with(0);
  // Ranks agree among themselves to stop, all of them; where a signal told them to, some may have been done already.
  const bool all_stopped = std::ranges::all_of(ranks(), [&](const Rank& rank) { return stopped(rank) || (told_to_end() && good(rank)); });
  if (all_stopped) return ended_with(kStopped);
  if (cause_ == nullptr) return ended_as_told();
  const bool others_well = std::ranges::all_of(ranks(), [&](const Rank& rank) { return &rank == cause_ || good(rank); });
  return failed_with(*cause_, cause_->end() + (others_well ? "" : "; the others were stopped"));
}

}  // namespace paceline::launch
