// LC-ASGD's own predictors: LSTMs that are trained online, one step per report.
//
// Losses: trained on (previous loss → this loss), then rolled out k steps, each from the one before. Steps: trained on (steps, t_comm,
// t_comp) of a worker's last visit → the iterations of the others between that visit and this one.
#pragma once

#include "paceline/ps/predictors/predictor.h"

namespace paceline::ps {

class LstmLosses final : public LossPredictor {
 public:
  LstmLosses(const PredictorConfig& config, std::uint64_t seed);
  ~LstmLosses() override;

  /// `wants_derivative` doubles the cost of the forecast; the derivative is that of the predictions by this loss, with the weights, the
  /// standardisation and the carried state held constant. At a loss that is not finite, the last forecast is returned again. More steps
  /// than PredictorConfig::longest are cut off.
  LossForecast observe(double loss, std::int64_t steps, bool wants_derivative) override;

  std::vector<float> save() const override;  // weights, moments, standardisation, hidden state
  void load(std::span<const float> state) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class LstmSteps final : public StepPredictor {
 public:
  LstmSteps(const PredictorConfig& config, int workers, std::uint64_t seed);
  ~LstmSteps() override;

  /// The caller's guess is returned unchanged until some worker has come twice. A time that is not finite counts as the mean.
  double observe(int worker, std::int64_t steps, double t_comm_s, double t_comp_s) override;
  void forget(int worker) override;

  std::vector<float> save() const override;
  void load(std::span<const float> state) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::ps
