// The two predictors of LC-ASGD (Li, He, Ren, Mao 2020, Algorithms 3 and 4), and the table of those that a recipe can choose.
//
// Loss predictor: one series of losses in the order of arrival, of which it predicts the next k; their sum is the loss that the gradient
// will miss. Step predictor: for each worker, the number of iterations of all others between this visit and its next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"

namespace paceline::ps {

/// The settings of [ps] that shape the predictors.
struct PredictorConfig {
  std::string predictor = "lstm";        // a row of predictors()
  std::string recording = {};            // recorded: predictions.csv of an earlier run
  std::int64_t layers = 2, hidden = 64;  // of each LSTM
  double rate = 1e-3;                    // Adam
  std::int64_t longest = 64;             // how many steps ahead a loss is predicted, at most
  void describe(Section& section);
};

struct LossForecast {
  double sum = 0;         // Σ ℓ̂_j over the k predicted losses
  double derivative = 0;  // ∂ sum / ∂ ℓ_m, through all k predictions (the reading `chain_rule`)
  double next = 0;        // ℓ̂_1, to be compared with the next loss that arrives
};

class LossPredictor {
 public:
  virtual ~LossPredictor() = default;

  /// Called when a loss arrives: learns from it, and predicts `steps` ahead (0 to PredictorConfig::longest). A loss that is not finite
  /// teaches nothing.
  virtual LossForecast observe(double loss, std::int64_t steps, bool wants_derivative) = 0;

  virtual std::vector<float> save() const = 0;
  virtual void load(std::span<const float> state) = 0;  // ConfigError if the length does not fit the settings; then nothing has changed
};

class StepPredictor {
 public:
  virtual ~StepPredictor() = default;

  /// A visit of `worker` after `steps` iterations of the others since its last one. Returns the prediction for the next visit, not rounded
  /// and at least 0. At a worker's first visit there is nothing to learn, and `steps` is the caller's guess. More workers than were
  /// announced may come.
  virtual double observe(int worker, std::int64_t steps, double t_comm_s, double t_comp_s) = 0;
  virtual void forget(int worker) = 0;  // it left: its next visit counts as its first

  virtual std::vector<float> save() const = 0;
  /// The state may be of another number of workers: those that it lacks count as new. ConfigError as above.
  virtual void load(std::span<const float> state) = 0;
};

/// A row of the table.
struct Predictor {
  std::unique_ptr<LossPredictor> (*losses)(const PredictorConfig&, std::uint64_t seed);
  std::unique_ptr<StepPredictor> (*steps)(const PredictorConfig&, int workers, std::uint64_t seed);
};
std::span<const Entry<Predictor>> predictors();

}  // namespace paceline::ps
