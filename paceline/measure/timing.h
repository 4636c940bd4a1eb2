// How long a piece of work takes: batches of calls, of which the lower quartile counts.
#pragma once

#include <functional>

#include "paceline/measure/ranks.h"
#include "paceline/measure/stopwatch.h"

namespace paceline::measure {

struct Timing {
  const Rank& rank;
  c10::Device device;
  const Clock& clock;
  double seconds = 0.05;  // of all batches together, unless one call each takes longer

  /// Seconds of one call, while all ranks make it at the same time: the mean over the ranks. `work` may meet the other ranks, since all
  /// make as many calls. Collective.
  double of(const std::function<void()>& work) const;
  /// The same where `before` precedes every call and does not count.
  double behind(const std::function<void()>& before, const std::function<void()>& work) const;
};

}  // namespace paceline::measure
