// The predictors that LC-ASGD's own are held against, for the table in registry.cpp.
#pragma once

#include "paceline/ps/predictors/predictor.h"

namespace paceline::ps {

/// Running means (running_mean.h): of all losses, and of each worker's own steps.
std::unique_ptr<LossPredictor> make_mean_losses(float newest);
std::unique_ptr<StepPredictor> make_mean_steps(float newest);

/// Forecasts of an LSTM, each given out at another report than it was made for: the right values at the wrong time.
std::unique_ptr<LossPredictor> make_shuffled_losses(const PredictorConfig& config, std::uint64_t seed);
std::unique_ptr<StepPredictor> make_shuffled_steps(const PredictorConfig& config, int workers, std::uint64_t seed);

/// What came in an earlier run (PredictorConfig::recording). With the same seed under the same virtual clock its steps are exact, and its
/// losses are those of the same minibatches on nearly the same parameters.
std::unique_ptr<LossPredictor> make_recorded_losses(const PredictorConfig& config);
std::unique_ptr<StepPredictor> make_recorded_steps(const PredictorConfig& config);

}  // namespace paceline::ps
