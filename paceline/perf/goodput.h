// The share of a run's throughput that remains after failures: the time of checkpoints, of work lost since the last one, and of restarts
// (Young 1974; Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006).
#pragma once

#include <cstdint>

namespace paceline::perf {

struct Failures {
  double mtbf_s = 0;  // of one device; 0: no failures
  std::int64_t devices = 1;
  double checkpoint_s = 0;  // to write one, while nothing is computed
  double restart_s = 0;     // from a failure until the job runs again
  double interval_s = 0;    // of computation between two checkpoints; 0: the optimum
};

struct Goodput {
  double interval_s = 0;  // between checkpoints
  double share = 1;       // of the wall-clock time that is spent on steps that are not lost
  double lost_s = 0;      // expected loss of computation at each failure
};

/// The interval at which the expected share is largest, found on Daly's model; about √(2·checkpoint·mtbf).
double best_interval(const Failures& failures);
/// Daly's model for exponential failures: the wall clock of a segment of τ seconds and its checkpoint of δ is
/// e^{R/M} M (e^{(τ+δ)/M} − 1) with the job's mean time between failures M and restart R. ConfigError for a negative number.
Goodput goodput(const Failures& failures);

}  // namespace paceline::perf
