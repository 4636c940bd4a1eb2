// A minibatch for a worker to compute. Workers have the data themselves; a task names a part of it.
#pragma once

#include <cstdint>

namespace paceline::ps {

struct Task {
  std::int64_t epoch = 0, batch = 0, step = 0;
  float rate = 0;                   // of the schedule
  std::int64_t complete_below = 0;  // all steps below this one are complete on all servers
  bool operator==(const Task&) const = default;
};

}  // namespace paceline::ps
