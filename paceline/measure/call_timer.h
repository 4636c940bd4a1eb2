// How long a piece of work takes: batches of calls, of which the lower quartile counts, or single calls as a step of training makes them.
#pragma once

#include <functional>

#include "paceline/measure/measuring_ranks.h"
#include "paceline/measure/stopwatch.h"

namespace paceline::measure {

struct CallTimer {
  const Rank& rank;
  c10::Device device;
  const Clock& clock;
  double seconds = 0.05;  // of all batches together, unless one call each takes longer

  /// Seconds of one call, while all ranks make it at the same time: the mean over the ranks. `work` may meet the other ranks, since all
  /// make as many calls. Collective.
  double of(const std::function<void()>& work) const;
  /// The same where `before` precedes every call and does not count.
  double behind(const std::function<void()>& before, const std::function<void()>& work) const;
  /// Seconds of one call as a step of training makes it: all ranks compute for a while and then call, and the call is over when the last
  /// rank is done. A network needs it: calls without a pause between them find their connections running, a rank is done once the system
  /// has what it sends, and stalls of some milliseconds are part of many steps, so that the fastest calls say little. The mean of the
  /// middle half of the calls counts. Collective.
  double after_computing(const std::function<void()>& compute, const std::function<void()>& work) const;
};

}  // namespace paceline::measure
