// The two predictors of LC-ASGD (Li, He, Ren, Mao 2020, Algorithms 3 and 4), trained online, one step per report.
//
// Loss predictor: one series of losses in the order of arrival. Trained on (previous loss → this loss); then rolled out k steps, each from
// the one before; their sum is the loss that the gradient will miss. Step predictor: for each worker, from (steps, t_comm, t_comp) of its
// last visit to the number of iterations of all workers between that visit and this one; then predicts the same for the next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/config.h"

namespace paceline::ps {

/// The settings of [ps] that shape the predictors.
struct PredictorConfig {
  std::int64_t layers = 2, hidden = 64;  // of each LSTM
  double rate = 1e-3;                    // Adam
  std::int64_t longest = 64;             // how many steps ahead a loss is predicted, at most
  void describe(Section& section);
};

struct LossForecast {
  double sum = 0;         // Σ ℓ̂_j over the k predicted losses
  double derivative = 0;  // ∂ sum / ∂ ℓ_m, through all k roll-outs (the reading `chain_rule`)
  double next = 0;        // ℓ̂_1, to be compared with the next loss that arrives
};

class LossPredictor {
 public:
  LossPredictor(const PredictorConfig& config, std::uint64_t seed);
  ~LossPredictor();
  LossPredictor(LossPredictor&&) noexcept;

  /// Called when a loss arrives: learns from the previous one, and predicts `steps` ahead (0 to PredictorConfig::longest; more are cut
  /// off). `wants_derivative` doubles the cost of the forecast; the derivative is that of the predictions by this loss, with the weights,
  /// the standardisation and the carried state held constant. A loss that is not finite changes nothing, and the last forecast is returned
  /// again.
  LossForecast observe(double loss, std::int64_t steps, bool wants_derivative);

  std::vector<float> save() const;          // weights, moments, standardisation, hidden state
  void load(std::span<const float> state);  // ConfigError if the length does not fit the settings; then nothing has changed

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class StepPredictor {
 public:
  /// More than `workers` may come later.
  StepPredictor(const PredictorConfig& config, int workers, std::uint64_t seed);
  ~StepPredictor();
  StepPredictor(StepPredictor&&) noexcept;

  /// A visit of `worker` after `steps` iterations of all workers since its last one. Returns the prediction for the next visit, not rounded
  /// and at least 0. At a worker's first visit there is nothing to learn, and `steps` is the caller's guess, which is returned unchanged
  /// until some worker has come twice. A time that is not finite counts as the mean.
  double observe(int worker, std::int64_t steps, double t_comm_s, double t_comp_s);
  void forget(int worker);  // it left: its next visit counts as its first

  std::vector<float> save() const;
  /// The state may be of another number of workers: those that it lacks count as new. ConfigError as above.
  void load(std::span<const float> state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::ps
