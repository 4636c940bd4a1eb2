#include "paceline/comm/verdict.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace paceline::comm {
namespace {

// It beat since the last look: its silence begins with the next one, so that no rank is blamed for time before its beat.
constexpr Nanoseconds kJustHeard(-1);

}  // namespace

std::string Loss::text() const { return fmt::format("is silent: no heartbeat for {:.2g} s", seconds(silent)); }

void Silence::beat(int rank, Nanoseconds limit) { ranks_[rank] = {limit, kJustHeard}; }

bool Silence::is_quiet(int rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.limit > Nanoseconds(0) && found->second.silent > found->second.limit / 2;
}

void Silence::look(Nanoseconds now) {
  const Nanoseconds passed = looked_ ? std::min(now - *looked_, kMostPerLook) : Nanoseconds(0);
  looked_ = now;
  const Nanoseconds none(0);
  std::optional<Loss> longest;
  for (auto& [rank, heard] : ranks_) {
    heard.silent = heard.silent == kJustHeard ? none : heard.silent + passed;
    const bool over = heard.limit > none && heard.silent >= heard.limit;
    if (over && (!longest || heard.silent > longest->silent)) longest = Loss{rank, heard.silent};
  }
  if (!loss_) loss_ = longest;
}

Accusations::Result Accusations::follow(int accuser) const {
  const auto first = accused_by_.find(accuser);
  if (first == accused_by_.end()) return {};
  std::set<int> seen{accuser};
  int culprit = first->second;
  while (seen.insert(culprit).second) {
    const auto next = accused_by_.find(culprit);
    if (next == accused_by_.end()) return {culprit, false};
    culprit = next->second;
  }
  return {first->second, true};
}

}  // namespace paceline::comm
