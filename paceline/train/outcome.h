// One run of a comparison, and what its folder says of it once it is done.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace paceline::train {

/// The label of one worker of a server, which is plain SGD too, by the same clock as the others but for messages that it need not send.
inline constexpr const char* kSgd = "sgd";

struct Contestant {
  std::string algorithm;                         // its label
  std::string clock = {};                        // label of compare.clocks; empty if the recipe has the only one
  std::vector<std::string> clock_settings = {};  // "key=value" each, over the recipe
  std::vector<std::string> settings = {};        // the algorithm's, over those
  std::vector<std::string> point = {};           // of its grid, over those
  bool tuning = false;                           // evaluated on held-out samples, for the choice of a point
  std::int64_t workers = 1, seed = 1;

  bool alone() const;          // plain SGD on one worker: the yardstick
  std::string folder() const;  // name of its run
};

struct Outcome {
  Contestant contestant;
  std::string stragglers;                            // which workers and links were slow; empty if none was
  std::string diverged;                              // what was said when it did; its errors are then not a number
  double final_error = NAN;                          // of the last model, in %, with the statistics that the recipe evaluates with
  double epochs = 0, seconds = 0, wall_seconds = 0;  // seconds: of training, by the virtual clock where there is one
  bool virtual_clock = false;
  double mean_staleness = 0;
  double iteration_ms = 0, predictor_ms = 0;                     // of a worker; of that, for predictors: assumed where the clock is virtual
  double measured_iteration_ms = 0;                              // by the real clock, whichever the run has
  double loss_predictor_ms = 0, step_predictor_ms = 0;           // as measured
  double bytes_per_step = 0;                                     // that a worker sent; 0 where workers share a server's memory
  std::vector<std::pair<std::string, double>> errors;            // by kind of statistics; "" if there is only one
  std::vector<double> epoch, error, time;                        // of every evaluation
  std::vector<double> loss, samples, megabytes;                  // mean training loss of a stretch of steps; seen and sent at its end
  std::vector<std::pair<std::int64_t, std::int64_t>> staleness;  // value and count
  std::vector<double> predicted_loss, actual_loss, predicted_steps, actual_steps, reporter, steps_ahead, delay_loss, scale;  // by report

  /// Of the last model. Nothing if it was not evaluated so: a run without a server has its own running statistics alone, which are
  /// those of a "worker". Not a number where it diverged.
  std::optional<double> error_with(const std::string& statistics) const;
};

/// Nothing if the run is not done. ConfigError if what is there is something else: nothing finished is ever removed.
std::optional<Outcome> read_outcome(const Contestant& contestant, const std::filesystem::path& folder, const std::string& recipe_text);

/// How many of the runs in a comparison's folder are done, those on held-out samples included.
std::size_t count_finished(const std::filesystem::path& runs);

}  // namespace paceline::train
