// A trial: a short training run in a child process, for what it measures. It leaves nothing behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace paceline::bench {

struct Trial {
  std::vector<std::string> words;  // for `paceline train`: a recipe and settings; what follows wins over them
  std::int64_t workers = 1;        // threads of the child
  std::int64_t batch = 0;          // of all of them together
  std::int64_t threads = 1;        // of each
  std::int64_t warm_up = 40;       // steps that are not counted; buckets are chosen by measurement in about 35
  std::int64_t steps = 100;        // that are
};

struct Measured {
  double step_s = 0;         // the mean time of a step after the warm-up
  double settled_s = 0;      // the median, as the run's summary has it
  double samples_per_s = 0;  // of all workers, by step_s
  // Where there are several workers; see observe::Communication. Not a number where nobody measures it: with a parameter server.
  double exposed = 0, hidden = 0;                              // of the time after the warm-up
  double straggler_spread = 0, bytes_per_step = 0, ratio = 1;  // of the whole run
};

/// Throws ConfigError or Error with what the child said where it fails, and Error once `stop` is set.
Measured run_trial(const Trial& trial, const std::atomic<bool>& stop);
Measured run_trial(const Trial& trial);

}  // namespace paceline::bench
