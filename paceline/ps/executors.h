// The table of ps.executor: who the servers and workers are. central/ runs them; what depends on the executor is a column here, or asks
// PsConfig.
#pragma once

#include <span>

#include "paceline/base/registry.h"

namespace paceline::ps {

/// ps.executor if a recipe leaves it open, and the rows that code selects.
inline constexpr const char *kAuto = "auto", *kThreads = "threads", *kProcesses = "processes", *kVirtual = "virtual";

struct ExecutorKind {
  bool processes = false;      // servers and workers are processes on CPUs; their messages travel, and may be compressed
  bool virtual_clock = false;  // one thread plays all workers, so that a run repeats to the bit
  bool threads() const { return !processes && !virtual_clock; }  // they share the servers' memory
};
using Executor = Entry<ExecutorKind>;
std::span<const Executor> executors();

}  // namespace paceline::ps
