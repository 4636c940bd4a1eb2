// How long a rank computes: the seconds of a step program's compute actions, by the roofline of a device (roofline_times.h) or from the
// measurements of `paceline profile` (profile_times.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/schedule/program.h"

namespace paceline::perf {

/// The relative uncertainty of a time, which is half the width of its interval, and notes for the reader: "batch 512 lies outside of what
/// was measured (8 to 128)".
struct Doubt {
  double share = 0;
  std::vector<std::string> notes = {};
};

class ComputeTimes {
 public:
  virtual ~ComputeTimes() = default;

  /// Seconds of a compute action with this many samples in its micro-batch; updates and compressors ignore them. Not thread-safe:
  /// implementations cache results.
  virtual double seconds(const schedule::Action& action, std::int64_t samples) const = 0;

  /// The part of those seconds in which the device waits for the host, because operations are launched more slowly than they run. Exchanges
  /// that follow on the same lane are launched as well, and are hidden in this time.
  virtual double idle_seconds(const schedule::Action& /*action*/, std::int64_t /*samples*/) const { return 0; }

  /// Seconds that a rank spends around the actions of a step of this many samples: on the next batch, and on bookkeeping.
  virtual double around_seconds(std::int64_t /*samples*/) const { return 0; }

  /// The uncertainty of the passes of a step whose micro-batches have these sizes, regardless of earlier calls.
  virtual Doubt doubt(std::span<const std::int64_t> samples) const = 0;
};

}  // namespace paceline::perf
