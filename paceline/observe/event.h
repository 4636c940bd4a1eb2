// The events of a run, for listeners: the progress bar, TensorBoard files, a trace, summary.json.
//
// Emitters know only the Bus. Listeners see only events, so a new kind of output takes one file.
//
// Order: RunStarted; for every epoch its StepDones, then EpochDone, then the Evaluated at its end if there is one; RunEnded. Evaluations in
// the middle of an epoch, checkpoints and spans come in between. A run that is resumed at the end of an epoch begins with that epoch's
// Evaluated. A number that was not measured is NaN.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "paceline/base/clock.h"

namespace paceline::observe {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// The predicted time and memory of a step, before the run began.
struct Prediction {
  double step_s = kUnknown;                    // as StepDone::duration counts it
  double low_s = kUnknown, high_s = kUnknown;  // the interval that it should lie in
  double compute_s = 0, optimizer_s = 0, encoding_s = 0, exposed_s = 0, bubble_s = 0, straggling_s = 0;  // parts of it
  double bytes = 0;                                                                                      // that worker 0 sends
  double memory_bytes = kUnknown;                                                                        // peak of worker 0's device
  std::string bottleneck;        // the largest part: "compute", "data communication"
  std::string cluster, profile;  // the sources of its numbers; profile may be empty
  std::vector<std::string> notes = {};
};

struct RunStarted {
  std::string run;  // folder of the run
  std::string network, dataset, optimizer, strategy, device, precision;
  std::string engine;  // between the workers; empty: there is one worker
  std::int64_t parameters = 0, macs = 0;
  std::int64_t train_samples = 0, test_samples = 0;
  std::int64_t batch = 0, epochs = 0, steps_per_epoch = 0;
  int workers = 1;
  std::vector<std::string> mesh = {};         // which workers have which part of the model, as lines of text; empty: each has all of it
  std::int64_t first_step = 0;                // > 0 after a resume
  bool per_token = false;                     // a language model: show the loss per token rather than the accuracy
  bool counts_right = true;                   // false: a user's loss without accuracy, which is not known then
  std::vector<std::string> class_names = {};  // of the dataset, by label; empty: it has none

  std::optional<Prediction> prediction = {};  // none for a user's module

  bool shows_accuracy() const { return counts_right && !per_token; }
};

struct StepDone {
  std::int64_t step = 0;                         // counted from 1 over the whole run
  std::int64_t steps = 0;                        // of the whole run
  std::int64_t epoch = 0;                        // from 1
  std::int64_t epoch_step = 0, epoch_steps = 0;  // within the epoch, from 1; a batch that grows makes later epochs shorter
  std::int64_t samples = 0;                      // of this step, over all workers
  double loss = 0, accuracy = 0, rate = 0;
  Nanoseconds duration{0};
  double communication_share = 0, hidden_share = 0;  // of its time: worker 0 waited for an exchange, or computed during one
  double bytes_sent = 0;                             // payload, by worker 0; a mean if steps are reported together
};

struct EpochDone {
  std::int64_t epoch = 0, epochs = 0;
  double train_loss = 0, train_accuracy = 0;
  Nanoseconds duration{0};
  std::int64_t samples = 0;
};

/// A user's metric on the test data.
struct Measured {
  std::string name;
  double value = kUnknown;
};

struct Evaluated {
  std::int64_t epoch = 0, step = 0;
  double loss = 0, accuracy = 0;
  double training_s = kUnknown;  // spent on steps so far, by the virtual clock if the run has one
  std::vector<Measured> metrics = {};
};

/// The same model evaluated with other batch-norm statistics.
struct EvaluatedView {
  std::int64_t epoch = 0, step = 0;
  std::string view;
  double loss = 0, accuracy = 0;
};

struct CheckpointWritten {
  std::int64_t step = 0;
  std::string file;
  std::int64_t bytes = 0;
  Nanoseconds duration{0};
};

/// What worker 0's checkpoints cost, since the run began or was resumed.
struct Checkpointing {
  std::int64_t written = 0;
  double paused_s = 0;      // training was paused
  double final_wait_s = 0;  // the end of the run waited for what was still being written
  double writer_s = 0;      // CPU time of all workers' writers, in parallel with training
};

/// A phase on a lane of a rank, for the trace.
struct Span {
  std::string name, lane;
  int rank = 0;
  Nanoseconds begin{0}, end{0};
};

/// The cost of communication; shares are of the time of all steps.
struct Communication {
  double exposed = 0, hidden = 0;  // exposed: training waited for it; hidden: training continued meanwhile. Means over the workers
  double straggler_spread = 0;     // how much less the fastest worker computed than the slowest, relative to the slowest
  double bytes_per_step = 0;       // payload, by worker 0
  double bytes_pipeline = 0, bytes_tensor = 0;  // of it, along these axes of the mesh; the rest went along the data axis
  double ratio = 1;                             // bytes without compression divided by bytes with it
};

/// What a parameter server did in a run.
struct Served {
  std::int64_t updates = 0, gradients = 0, dropped = 0, refused = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> staleness;  // staleness, and how many gradients had it
  double mean_staleness = 0;
  double virtual_s = kUnknown;                          // of the virtual clock
  double iteration_ms = kUnknown;                       // of a worker, on average, by the virtual clock if there is one
  double predictor_ms = 0;                              // of it, for the predictors of lc_asgd
  double loss_predictor_ms = 0, step_predictor_ms = 0;  // a report; lc_asgd
  std::vector<float> predicted_loss, actual_loss, predicted_steps, actual_steps;  // by report
  std::vector<float> worker, steps_ahead, delay_loss, scale;                      // who reported; k, ℓ_delay and s of the answer
};

/// Where worker 0's process spent its time, in wall-clock seconds.
struct WallTime {
  double start = 0;  // before the first step
  double steps = 0;
  double data = 0;  // waiting for batches
  double evaluation = 0;
  double checkpoints = 0;  // training paused
  double final_wait = 0;   // the end of the run waited for the last one to reach the disk
  double rest = 0;

  double total() const { return start + steps + data + evaluation + checkpoints + final_wait + rest; }
};

struct RunEnded {
  int workers = 1;
  std::int64_t steps = 0, epochs = 0, samples = 0;
  double seconds = 0, samples_per_s = 0;
  double train_loss = 0, test_loss = kUnknown, test_accuracy = kUnknown;
  std::string state_hash, parameters_hash, run;  // hash of everything that the next step depends on; of the model's tensors alone
  std::string stopped;                           // empty: done; otherwise why it ended early
  std::optional<Communication> communication;    // with several workers
  std::optional<Served> served = {};             // with a parameter server
  std::vector<EvaluatedView> views = {};         // of the last evaluation
  std::vector<Measured> test_metrics = {};
  std::optional<Checkpointing> checkpoints = {};  // if any are written
  WallTime wall = {};
  std::int64_t skipped_steps = 0;  // because gradients in fp16 overflowed
  double step_s = kUnknown;        // median of the last steps' durations, meetings of replicas included
  double memory_bytes = kUnknown;  // peak of worker 0 in one of the first steps: its state, and what passes need
};

using Event = std::variant<RunStarted, StepDone, EpochDone, Evaluated, EvaluatedView, CheckpointWritten, Span, RunEnded>;

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on(const Event& event) = 0;
};

/// Passes every event to every listener, one at a time, in the order in which they were added. Thread-safe. A listener that throws (a full
/// disk) is dropped with a warning: training does not end because a listener fails.
class Bus {
 public:
  void add(std::unique_ptr<Listener> listener);
  void emit(const Event& event);
  bool wants_spans() const { return wants_spans_; }  // spans are only emitted if a listener wants them
  void want_spans() { wants_spans_ = true; }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::atomic<bool> wants_spans_ = false;
};

}  // namespace paceline::observe
