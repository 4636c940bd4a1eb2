// A comparison: algorithms × numbers of workers × seeds, each a run of its own in a folder of its own, so that what is done stays done.
//
// [compare] of a recipe says what is compared. The recipe's data.batch is that of one worker. An algorithm is a strategy's name, or a label
// with settings:   "sgd; asgd; asgd, half rate: strategy.name=asgd optim.rate=0.05"
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "paceline/train/recipe.h"

namespace paceline::train {

/// One run of a comparison.
struct Contestant {
  std::string algorithm;              // its label
  std::vector<std::string> settings;  // over the recipe
  std::int64_t workers = 1, seed = 1;

  bool alone() const;          // plain SGD on one worker: the yardstick
  std::string folder() const;  // name of its run
};

/// The runs that [compare] asks for, in the order of the report. "sgd" and "single" run once a seed, on one worker. ConfigError where an
/// entry makes no sense.
std::vector<Contestant> contestants(const CompareConfig& config);

/// The recipe of one run, whose folder will be `runs`/contestant.folder(). Of the slow workers it has those that the run has; ConfigError
/// where no run of the comparison has one.
Recipe recipe_of(const Recipe& recipe, const Contestant& contestant, const std::filesystem::path& runs);

/// What its folder says of a run that is done.
struct Outcome {
  Contestant contestant;
  std::string stragglers;                            // which workers and links were slow; empty where none was
  std::string diverged;                              // what was said when it did; its errors are then not a number
  double epochs = 0, seconds = 0, wall_seconds = 0;  // seconds: of training, by the virtual clock where there is one
  double mean_staleness = 0, iteration_ms = 0, predictor_ms = 0;
  double loss_predictor_ms = 0, step_predictor_ms = 0;           // as measured
  double bytes_per_step = 0;                                     // that a worker sent; 0 where workers share a server's memory
  std::vector<std::pair<std::string, double>> errors;            // by kind of statistics; "" where there is but one
  std::vector<double> epoch, error, time;                        // of every evaluation
  std::vector<double> loss, samples, megabytes;                  // mean training loss of a stretch of steps; seen and sent at its end
  std::vector<std::pair<std::int64_t, std::int64_t>> staleness;  // value and count
  std::vector<double> predicted_loss, actual_loss, predicted_steps, actual_steps;

  /// Of the last model. Nothing where it was not evaluated so: a run without a server has its own running statistics alone, which are
  /// those of a "worker". Not a number where it diverged.
  std::optional<double> error_with(const std::string& statistics) const;
};
/// Nothing where the run is not done. ConfigError where what is there is something else: nothing finished is ever removed.
std::optional<Outcome> read_outcome(const Contestant& contestant, const std::filesystem::path& folder, const std::string& recipe_text);

struct Comparison {
  std::vector<Outcome> outcomes;
  bool stopped = false;
};

/// Runs what is not done yet, `together` runs at a time. `told` hears of each: how many are done, of how many, and which. A run that fails
/// ends the others, and what it says is thrown. ConfigError where another process compares in the same folder.
Comparison compare(const Recipe& recipe, const std::filesystem::path& runs, int together, const std::atomic<bool>& stop,
                   const std::function<void(std::size_t done, std::size_t all, const Contestant&, const Outcome*)>& told);

}  // namespace paceline::train
