// A recorded run: its durations, and the order of its events.
#pragma once

#include "paceline/ps/timing.h"

namespace paceline::ps {

/// Of any duration: eleven days.
inline constexpr Nanoseconds kLongest{1'000'000'000'000'000};

/// The durations of config.trace.
std::unique_ptr<Timing> replayed(const TimingConfig& config, int workers);

/// The visits of config.trace: by worker, in the order of its iterations. ConfigError if the file has durations alone, DataError if
/// they are not those of a run: numbers that come twice, minibatches or events that are missing.
std::vector<std::vector<Visit>> recorded_visits(const TimingConfig& config, int workers);

}  // namespace paceline::ps
