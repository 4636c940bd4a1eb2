// A recorded run: its durations, and the order of its events.
#pragma once

#include "paceline/ps/timing.h"

namespace paceline::ps {

/// The limit for any duration: eleven days.
inline constexpr Nanoseconds kLongest{1'000'000'000'000'000};

/// The durations of config.trace.
std::unique_ptr<Timing> replayed(const TimingConfig& config, int workers);

/// The visits of config.trace: by worker, in the order of its iterations. ConfigError if the file has only durations, DataError if they do
/// not form a run: duplicate numbers, missing minibatches or events.
std::vector<std::vector<Visit>> recorded_visits(const TimingConfig& config, int workers);

}  // namespace paceline::ps
