// A run of as many workers as its recipe says, in a folder that may hold an earlier one.
#pragma once

#include "paceline/train/workers.h"
#include "support.h"

namespace paceline::train {

inline observe::RunEnded run_in(const std::filesystem::path& folder, const Recipe& recipe, bool resume = false, std::int64_t stop_after = 0,
                                const Workload& workload = {}) {
  observe::Bus bus;
  const SteadyClock clock;
  std::atomic<bool> stop = false;
  if (stop_after > 0) bus.add(std::make_unique<StopAfter>(stop_after, stop));
  std::optional<FoundCheckpoint> from;
  if (resume) from = newest_good_checkpoint(folder);
  return Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop, .from = from ? &*from : nullptr, .workload = workload}).run(folder);
}

}  // namespace paceline::train
