// Measures how long a piece of work takes: batches of calls, of which the lower quartile counts, or single calls as they occur in a
// training step.
#pragma once

#include <functional>

#include "paceline/measure/measuring_ranks.h"
#include "paceline/measure/stopwatch.h"

namespace paceline::measure {

struct CallTimer {
  const Rank& rank;
  c10::Device device;
  const Clock& clock;
  double seconds = 0.05;  // for all batches together, unless one call per batch takes longer

  /// Seconds of one call, with all ranks calling at the same time: the mean over the ranks. `work` may communicate, since all ranks make
  /// the same number of calls. Collective.
  double of(const std::function<void()>& work) const;
  /// The same, with a call of `before` in front of every call, which is not counted.
  double behind(const std::function<void()>& before, const std::function<void()>& work) const;
  /// Seconds of one call as in a training step: all ranks compute for a while and then call, and the call ends when the last rank is done.
  /// Needed for networks: in back-to-back calls the connections are warm and a rank is done once the system has buffered what it sends,
  /// while in many real steps there are stalls of some milliseconds, so the fastest calls are not typical. Uses the mean of the middle half
  /// of the calls. Collective.
  double after_computing(const std::function<void()>& compute, const std::function<void()>& work) const;
};

}  // namespace paceline::measure
