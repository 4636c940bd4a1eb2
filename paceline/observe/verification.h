// Compares the predictions and measurements in the summary.json of several runs. `paceline verify` prints it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace paceline::observe {

/// A run whose summary has a prediction.
struct VerifiedRun {
  std::string run;  // folder
  std::string network, strategy, device, precision;
  std::int64_t workers = 1, batch = 0;
  std::int64_t samples = 0;                                       // of a step; with a parameter server, of a worker's minibatch
  double predicted_s = 0, low_s = 0, high_s = 0, measured_s = 0;  // of a step
  double predicted_exposed_s = 0, predicted_bytes = 0;            // of it: time spent waiting for communication; sent by worker 0
  std::optional<double> measured_exposed_s, measured_bytes;  // nullopt: the workers of a parameter server in one process are not measured
  double predicted_memory = 0, measured_memory = 0;          // peak bytes of worker 0; 0: unknown
  bool exact = true;  // the run computed the same as one worker with the whole batch; set by the caller, which has read the recipe

  double error() const { return predicted_s / measured_s - 1; }
  bool inside() const { return low_s <= measured_s && measured_s <= high_s; }
  bool knows_memory() const { return predicted_memory > 0 && measured_memory > 0; }
  double memory_error() const { return predicted_memory / measured_memory - 1; }
};

/// The mean error of the predictions of one part of a step, of the runs that measured it; positive if they are too high.
struct Bias {
  std::string part;  // "step", "computing", "exposed communication", "bytes"
  double share = 0;  // of the measured step; for bytes: of the measured bytes
};

/// Runs that train the same with the same number of workers in different ways: what it costs to choose by the predictions. Asynchronous
/// and lossy runs, whose samples are worth less, are compared with each other only, as the planner does.
struct Regret {
  std::string question;      // "resnet18, batch 64, 2 workers"
  std::string chosen, best;  // run with the fastest prediction, and the fastest run
  std::size_t runs = 0;
  double share = 0;  // by which the chosen run is slower
};

struct Verification {
  std::vector<VerifiedRun> runs;
  double mean = 0, percentile_90 = 0, worst = 0;  // of absolute errors
  double inside = 0;                              // share of runs that lie in their predicted interval
  std::size_t with_memory = 0;                    // runs with both a predicted and a measured value
  double memory_mean = 0, memory_worst = 0;       // of their absolute errors
  std::vector<Bias> bias;
  std::vector<Regret> regrets;
};

/// Nullopt if the run ended without a prediction, or before its first step. DataError if the file is not a summary.
std::optional<VerifiedRun> read_verified(const std::filesystem::path& summary);
/// The summaries in `folder`: its own, or those of its subfolders. ConfigError if there is no such folder.
std::vector<std::filesystem::path> find_summaries(const std::filesystem::path& folder);

/// `runs` must not be empty.
Verification verify(std::vector<VerifiedRun> runs);
nlohmann::ordered_json to_json(const Verification& verification);

}  // namespace paceline::observe
