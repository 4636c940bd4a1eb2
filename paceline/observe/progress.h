// A run for human readers: a table at the start, one live line and one row per epoch during training, a summary at the end.
//
// On a terminal the live line is redrawn, at most ten times a second, and makes room for log lines. Elsewhere (a file, a pipe) nothing is
// redrawn: every few seconds or steps a line is written, in words that can be searched for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/base/log.h"
#include "paceline/observe/event.h"
#include "paceline/observe/progress_line.h"
#include "paceline/observe/terminal.h"

namespace paceline::observe {

/// Bytes of memory that this process holds now (resident set); 0 if unknown.
std::int64_t resident_bytes();

/// An exponential mean: each new value weighs a tenth. A value that is not finite is shown as it is, and does not enter the mean.
class RecentMean {
 public:
  void add(double value);
  double value() const { return value_; }

 private:
  double value_ = kUnknown;
  double weight_ = 0;  // total weight of the values so far: 1 - 0.9^n
};

struct ProgressOptions {
  Nanoseconds redraw_every = std::chrono::milliseconds(100);
  Nanoseconds line_every = std::chrono::seconds(10);  // if lines cannot be redrawn
  std::int64_t line_every_steps = 0;                  // the same counted in steps; 0: only by time
  std::function<std::int64_t()> memory = resident_bytes;
  std::function<bool(const std::string& file)> is_there = [](const std::string& file) { return std::filesystem::exists(file); };
  /// What to do after the run: label and command. Placeholders: {run} is the run's folder; {curve} the figure in it, if it could be drawn;
  /// {checkpoint} the folder if it has a checkpoint; {stopped} the same if the run also ended early; {last} its last checkpoint in that
  /// case. Rows with an empty placeholder are left out.
  std::vector<Row> next = {{"run", "{run}"},
                           {"curve", "{curve}"},
                           {"tensorboard", "tensorboard --logdir {run}"},
                           {"checkpoint", "paceline checkpoint show {checkpoint}"},
                           {"resume", "paceline train --resume {stopped}"}};
};

class Progress final : public Listener {
 public:
  /// The clock must outlive the listener.
  Progress(Terminal terminal, const Clock& clock, ProgressOptions options = {});
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on(const Event& event) override;

 private:
  void see(const RunStarted& event);
  void see(const StepDone& event);
  void see(const EpochDone& event);
  void see(const Evaluated& event);
  void see(const EvaluatedView&) {}  // shown together at the end
  void see(const CheckpointWritten& event);
  void see(const Span&) {}
  void see(const RunEnded& event);

  std::vector<Row> measured_here(const RunEnded& event) const;
  Standing standing() const;
  void draw();
  void print(const std::string& permanent);  ///< above the live line, which it erases
  void print_epoch(const Evaluated* test);
  void print_next(bool stopped);
  void make_room(const std::function<void()>& write_line);

  Terminal terminal_;
  const Clock& clock_;
  ProgressOptions options_;

  RunStarted run_;
  StepDone last_;
  RecentMean loss_, accuracy_, samples_per_s_;
  Nanoseconds started_{0};
  std::optional<Nanoseconds> drawn_;  // when a line was last drawn or written
  std::int64_t drawn_step_ = 0;
  bool line_on_screen_ = false;

  std::optional<EpochDone> unprinted_;  // waits for its evaluation
  bool header_printed_ = false;
  std::int64_t samples_here_ = 0;  // of the steps since the run began or was resumed
  double training_s_here_ = 0;
  std::optional<Evaluated> best_;
  std::string checkpoint_;
  Nanoseconds checkpoint_time_{0};

  std::mutex mutex_;                   // guards everything above, because log lines come from other threads
  std::optional<log::Screen> screen_;  // if there is a live line; the last member, so that it is destroyed first
};

}  // namespace paceline::observe
