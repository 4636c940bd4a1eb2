// A job over weeks: steps, checkpoints, failures and restarts, from failure to failure. Step times are drawn from those of a replay.
//
// A synchronous job stops as a whole when one of its devices fails: it loses what it did since its last checkpoint, and restarts, which may
// fail as well. Workers of a parameter server fail independently and return after a restart, losing one step; only the failure of a server
// stops the job.
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
  std::int64_t failures = 2000;  // how many to simulate
  std::uint64_t seed = 1;
};

/// Seconds by what they were spent on; they add up to `wall_s`.
struct Survival {
  double wall_s = 0;
  double useful_s = 0;  // steps that count
  double lost_s = 0;    // lost steps, and checkpoints that were not completed
  double checkpoints_s = 0, restarts_s = 0;
  std::int64_t failures = 0, checkpoints = 0;
  double workers_up = 1;      // the average share of the workers that fail independently
  double longest_loss_s = 0;  // of computation, by a single failure
  double share() const { return wall_s > 0 ? useful_s / wall_s * workers_up : 1; }  // goodput divided by throughput
};

/// `steps`: seconds of some steps, at least one. ConfigError for negative times, and if the job would hardly ever reach a checkpoint.
Survival survive(const FailureSettings& settings, std::span<const double> steps);

}  // namespace paceline::sim
