// A job over weeks: steps, checkpoints, failures and restarts, from failure to failure. Steps are drawn from those that a replay found.
//
// A synchronous job stops as a whole when one of its devices fails: it loses what it did since its last checkpoint, and restarts, which may
// fail as well. Workers of a parameter server fail alone and come back after a restart, with the loss of one step; only a server takes the
// job with it.
#pragma once

#include <cstdint>
#include <span>

namespace paceline::sim {

struct FailureSettings {
  double mtbf_s = 0;             // of one device, exponentially distributed; above 0
  std::int64_t devices = 1;      // whose failure stops the job
  std::int64_t workers = 0;      // whose failure stops only themselves
  double checkpoint_s = 0;       // to write one, while nobody computes
  double restart_s = 0;          // until the job, or a worker, runs again
  double interval_s = 0;         // of computation between checkpoints, as whole steps
  std::int64_t failures = 2000;  // to wait for
  std::uint64_t seed = 1;
};

/// Seconds, and what they were spent on; they add up to `wall_s`.
struct Survival {
  double wall_s = 0;
  double useful_s = 0;  // steps that count
  double lost_s = 0;    // steps that were lost, checkpoints that did not get done
  double checkpoints_s = 0, restarts_s = 0;
  std::int64_t failures = 0, checkpoints = 0;
  double workers_up = 1;                                                            // of those that fail alone: their share, on average
  double longest_loss_s = 0;                                                        // of computation, at one failure
  double share() const { return wall_s > 0 ? useful_s / wall_s * workers_up : 1; }  // goodput over throughput
};

/// `steps`: seconds of some steps, at least one. ConfigError for times below 0, and where the job would hardly ever get to a checkpoint.
Survival survive(const FailureSettings& settings, std::span<const double> steps);

}  // namespace paceline::sim
