// One run of a comparison, and what its folder contains once it is done.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace paceline::train {

/// The label of a single worker with a server, which is also plain SGD: by the same clock as the others, except for messages that it need
/// not send.
inline constexpr const char* kSgd = "sgd";

struct Contestant {
  std::string algorithm;                         // its label
  std::string clock = {};                        // label of compare.clocks; empty if the recipe has the only one
  std::vector<std::string> clock_settings = {};  // "key=value" each, over the recipe
  std::vector<std::string> settings = {};        // the algorithm's, which override the recipe's
  std::vector<std::string> point = {};           // of its grid, overriding those
  bool tuning = false;                           // evaluated on held-out samples, to choose a point
  std::int64_t workers = 1, seed = 1;

  bool alone() const;          // plain SGD on one worker: the baseline
  std::string folder() const;  // the name of its run
};

struct Outcome {
  Contestant contestant;
  std::string stragglers;                            // which workers and links were slow; empty if none was
  std::string diverged;                              // the message if it diverged; its errors are then NaN
  double final_error = NAN;                          // of the last model, in percent, with the statistics that the recipe evaluates
  double epochs = 0, seconds = 0, wall_seconds = 0;  // seconds: of training, by the virtual clock if there is one
  bool virtual_clock = false;
  double mean_staleness = 0;
  double iteration_ms = 0, predictor_ms = 0;            // of a worker; the predictors' part of it: assumed under a virtual clock
  double measured_iteration_ms = 0;                     // by the real clock, whatever the run's clock
  double loss_predictor_ms = 0, step_predictor_ms = 0;  // measured
  double bytes_per_step = 0;                            // that a worker sent; 0 if workers share a server's memory
  std::vector<std::pair<std::string, double>> errors;   // by kind of statistics; "" if there is only one
  std::vector<double> epoch, error, time;               // of every evaluation
  std::vector<double> loss, samples, megabytes;         // mean training loss of a stretch of steps; samples and megabytes at its end
  std::vector<std::pair<std::int64_t, std::int64_t>> staleness;  // value and count
  std::vector<double> predicted_loss, actual_loss, predicted_steps, actual_steps, reporter, steps_ahead, delay_loss, scale;  // by report

  /// The error of the last model with these statistics. Nullopt if it was not evaluated with them: a run without a server has only its own
  /// running statistics, which are those of a "worker". NaN if the run diverged.
  std::optional<double> error_with(const std::string& statistics) const;
};

/// Nullopt if the run is not done. ConfigError if the folder contains something else, since no finished run is ever removed.
std::optional<Outcome> read_outcome(const Contestant& contestant, const std::filesystem::path& folder, const std::string& recipe_text);

/// How many of the runs in a comparison's folder are done, including those on held-out samples.
std::size_t count_finished(const std::filesystem::path& runs);

}  // namespace paceline::train
