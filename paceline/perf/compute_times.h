// How long a rank computes: the compute actions of a step program, in seconds. By the roofline of a device (roofline_times.h), or from
// what `paceline profile` measured (profile_times.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/schedule/program.h"

namespace paceline::perf {

/// How far seconds may be off, as a share of them: half the width of the interval. And what a reader should know, each note once: "batch
/// 512 lies outside of what was measured (8 to 128)".
struct Doubt {
  double share = 0;
  std::vector<std::string> notes = {};
};

class ComputeTimes {
 public:
  virtual ~ComputeTimes() = default;

  /// Of a compute action; `samples` of its micro-batch, which an update or a compressor does not look at. Not thread-safe: implementations
  /// keep what they worked out.
  virtual double seconds(const schedule::Action& action, std::int64_t samples) const = 0;

  /// Of those seconds, how long the device waits for the host, which launches operations more slowly than they run. Exchanges that come
  /// behind on the same lane are launched as well, and hide there.
  virtual double idle_seconds(const schedule::Action& /*action*/, std::int64_t /*samples*/) const { return 0; }

  /// What a rank does around the actions of a step of this many samples: it takes the next batch, and does the bookkeeping of the run.
  virtual double around_seconds(std::int64_t /*samples*/) const { return 0; }

  /// Of the passes of a step whose micro-batches have these sizes, whatever else was asked before.
  virtual Doubt doubt(std::span<const std::int64_t> samples) const = 0;
};

}  // namespace paceline::perf
