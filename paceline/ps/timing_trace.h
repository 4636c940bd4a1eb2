// Recorded durations, as distribution=trace plays them.
#pragma once

#include "paceline/ps/timing.h"

namespace paceline::ps {

/// Of any duration: eleven days.
inline constexpr Nanoseconds kLongest{1'000'000'000'000'000};

/// A MakeTiming: reads config.trace.
std::unique_ptr<Timing> replayed(const TimingConfig& config, int workers, std::uint64_t seed);

}  // namespace paceline::ps
