// How long workers take: the durations that a virtual clock uses, and the delays that are added to real workers.
//
// A worker's time to compute is compute_ms × Gamma(shape, 1/shape) (the default, Gamma(100), is the homogeneous cluster of the literature),
// or constant, or constant plus an exponential tail; its mean is compute_ms in all cases. It is multiplied by the worker's own factor, and
// pauses are added. Messages have a distribution and factors of their own in the same way. A draw is a pure function of (seed, worker,
// iteration), so it does not depend on the order of events. From a recorded run, durations can be drawn again, or the run itself can be
// replayed: the same visits in the same order (timing_trace.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/base/config.h"

namespace paceline::ps {

/// [timing] of a recipe.
struct TimingConfig {
  std::string distribution = "gamma";             // constant, gamma, exponential_tail, durations, trace
  double compute_ms = 100;                        // mean of a forward and backward pass
  double forward_share = 0.33;                    // the part of it before the loss is known
  double shape = 100;                             // gamma
  double tail = 0.2;                              // exponential_tail: the tail's mean, as a share of compute_ms; the rest is constant
  double latency_ms = 0.1;                        // of a message
  double bandwidth_mb_per_s = 1000;               // of a worker's link to the server
  double predictor_ms = 0.1;                      // of the server, for each report under lc_asgd
  std::string network_distribution = "constant";  // constant, gamma, exponential_tail: distribution of a message's time, with the same mean
  double network_shape = 100;                     // gamma
  double network_tail = 0.2;                      // exponential_tail
  std::vector<std::int64_t> slow_links = {};      // the messages of these workers …
  double slow_link_factor = 1;                    // … take this many times as long
  bool transfers = true;                          // false: messages take no time, as if a single worker held the parameters itself
  std::string trace = {};                         // durations, trace: the file that an earlier run recorded
  std::string record = {};                        // threads: write such a file
  std::vector<std::int64_t> slow_workers = {};    // these …
  double slow_factor = 1;                         // … take this many times as long
  double spread = 0;                              // heterogeneous speeds: worker m of M takes 1 + spread · m/(M−1) times as long
  double pause_probability = 0;                   // per iteration: the worker stands still …
  double pause_ms = 1000;                         // … for so long,
  std::string pause_distribution = "constant";    // … or exponentially distributed with that mean
  void describe(Section& section);

  /// Whether message times differ from what latency and bandwidth give.
  bool varies_network() const { return network_distribution != "constant" || !slow_links.empty() || !transfers; }
  /// Whether an earlier run's durations are read from `trace`.
  bool recorded() const { return distribution == "durations" || distribution == "trace"; }
};

/// The durations of one iteration of one worker.
struct Iteration {
  Nanoseconds pull{0}, forward{0}, report{0}, backward{0}, push{0};
};

/// Which minibatch an iteration computed, and its visits: the events of all workers at the server, numbered in order from 1. 0: none.
struct Visit {
  std::int64_t minibatch = 0;  // from 0
  std::int64_t pulled = 0, reported = 0, pushed = 0;
};

class Timing {
 public:
  virtual ~Timing() = default;
  /// The durations of the worker's iteration `iteration`, counted from 0, which moves `bytes` each way.
  virtual Iteration draw(int worker, std::int64_t iteration, std::int64_t bytes) const = 0;
};

/// ConfigError if the settings are invalid: a number outside its range, a slow worker that does not exist, a replay combined with
/// stragglers. Call it before `straggle`; make_timing() calls it itself.
void validate(const TimingConfig& config, int workers);

/// Also throws ConfigError if a trace is missing or has another number of workers, DataError if it is damaged. A worker that joins later,
/// with a number past `workers`, is as fast as the one with that number modulo `workers`.
std::unique_ptr<Timing> make_timing(const TimingConfig& config, int workers, std::uint64_t seed);

/// What stragglers add to a real worker's iteration that took `computed`: the excess of its slow-down factor, and its pauses, which are the
/// same as in a drawn timing. Zero if no stragglers are configured.
Nanoseconds straggle(const TimingConfig& config, int workers, std::uint64_t seed, int worker, std::int64_t iteration, Nanoseconds computed);

/// Records a real run in the format that distribution=durations and trace read: one line per iteration of a worker. timing_trace.cpp
/// describes the format. Any thread may record; the destructor writes what is buffered.
class TimingRecorder {
 public:
  /// ConfigError if the file cannot be written.
  TimingRecorder(const std::filesystem::path& file, int workers);
  ~TimingRecorder();
  /// A worker's iterations must be recorded in order. DataError if writing fails.
  void record(int worker, std::int64_t iteration, const Iteration& durations, const Visit& visit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::ps
