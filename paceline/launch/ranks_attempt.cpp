#include "paceline/launch/ranks_attempt.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/process_state.h"
#include "paceline/base/run_program.h"

namespace paceline::launch {

/// Of several that ended at once, one that was killed is the cause: the others only noticed.
void RanksAttempt::judge(const std::vector<Rank*>& ended) {
  note_given_up(ended);
  if (cause_ != nullptr) return give_up_silent();
  for (const Rank* rank : ended)
    if (failed(*rank) && (cause_ == nullptr || (rank->exit->signal != 0 && cause_->exit->signal == 0))) cause_ = rank;
  if (cause_ == nullptr) return;
  stop_after(job().grace);
  give_up_silent();
}

/// A stopped process does not receive SIGTERM, and no rank waits for it any more.
void RanksAttempt::give_up_silent() {
  const std::optional<LauncherLine> line = blame_lines().verdict();
  if (!line || line->silent.count() == 0) return;
  const auto rank = std::ranges::find(ranks(), line->rank, [](const Rank& each) { return each.place.rank; });
  if (rank == ranks().end() || rank->exit || !rank->given_up.empty()) return;
  const auto state = rank->place.here ? process_state(rank->process.pid) : std::nullopt;
  const bool stopped = state && state->is_stopped();
  give_up(*rank, fmt::format("{}: no heartbeat for {:.2g} s", stopped ? "is stopped" : "is silent", seconds(line->silent)));
}

/// If a rank lived until the launcher ended it, the reason that other ranks gave is more informative than its own end.
void RanksAttempt::note_given_up(const std::vector<Rank*>& ended) {
  const std::optional<LauncherLine> line = blame_lines().verdict();
  for (Rank* rank : ended)
    if (line && is_stopping() && rank->place.rank == line->rank && rank->given_up.empty())
      rank->given_up = "was given up on by the others: " + line->what;
}

const Rank* RanksAttempt::blamed() const {
  const std::optional<LauncherLine> line = blame_lines().verdict();
  if (!line || !blame_lines().has_blamed(cause_->place.rank)) return nullptr;
  const auto rank = std::ranges::find(ranks(), line->rank, [](const Rank& each) { return each.place.rank; });
  return rank == ranks().end() || rank->exit->good() ? nullptr : &*rank;
}

Ending RanksAttempt::ending() const {
  const auto good = [](const Rank& rank) { return rank.exit->good(); };
  const auto stopped = [](const Rank& rank) { return rank.exit->code == kStopped; };
  if (std::ranges::all_of(ranks(), good)) return ended_with(0);
  // Ranks agree among themselves to stop, all together; if a signal told them to, some may already have been done.
  const bool all_stopped = std::ranges::all_of(ranks(), [&](const Rank& rank) { return stopped(rank) || (told_to_end() && good(rank)); });
  if (all_stopped) return ended_with(kStopped);
  if (cause_ == nullptr) return ended_as_told();
  const Rank* culprit = blamed();
  if (culprit == nullptr) culprit = cause_;
  const bool others_well = std::ranges::all_of(ranks(), [&](const Rank& rank) { return &rank == culprit || good(rank); });
  return failed_with(*culprit, culprit->end() + (others_well ? "" : "; the others were stopped"));
}

}  // namespace paceline::launch
