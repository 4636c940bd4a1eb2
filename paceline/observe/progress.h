// The run as people see it: a table before, one live line and one row per epoch during, a summary after.
//
// On a terminal the live line is redrawn, at most ten times a second, and makes room for log lines. Elsewhere (a file, a pipe) nothing is
// redrawn: a line appears every few seconds or steps, in words that can be searched for.
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
  double weight_ = 0;  // of all values so far: 1 - 0.9^n
};

struct ProgressOptions {
  Nanoseconds redraw_every = std::chrono::milliseconds(100);
  Nanoseconds line_every = std::chrono::seconds(10);  // if lines cannot be redrawn
  std::int64_t line_every_steps = 0;                  // the same counted in steps; 0: only by time
  std::function<std::int64_t()> memory = resident_bytes;
  std::function<bool(const std::string& file)> is_there = [](const std::string& file) { return std::filesystem::exists(file); };
  /// What to do when the run is over: label and command. {run} is the run's folder; {curve} the picture in it, unless a full disk has kept
  /// it from being drawn; {checkpoint} the folder if it has a checkpoint, {stopped} if it also ended early, and {last} its last checkpoint
  /// then. A row whose word has no value is left out.
  std::vector<Row> next = {{"run", "{run}"},
                           {"curve", "{curve}"},
                           {"tensorboard", "tensorboard --logdir {run}"},
                           {"checkpoint", "paceline checkpoint show {checkpoint}"},
                           {"go on", "paceline train --resume {stopped}"}};
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
  void see(const EvaluatedView&) {}  // the end shows them together
  void see(const CheckpointWritten& event);
  void see(const Span&) {}
  void see(const RunEnded& event);

  Standing standing() const;
  void draw();
  void print(const std::string& permanent);  ///< above the live line, which it wipes
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
  std::optional<Evaluated> best_;
  std::string checkpoint_;
  Nanoseconds checkpoint_time_{0};

  std::mutex mutex_;                   // of all above: lines of the log come from other threads
  std::optional<log::Screen> screen_;  // if there is a live line; the last member, so that it is destroyed first
};

}  // namespace paceline::observe
