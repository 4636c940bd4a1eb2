// The server's half of LC-ASGD (Algorithms 2 to 4): from a worker's report, how many steps its gradient will miss, the losses of those
// steps, and the number by which the worker's gradient is to be multiplied.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paceline/ps/config.h"
#include "paceline/ps/readings.h"

namespace paceline::ps {

/// What a worker knows when its forward pass is done.
struct Report {
  double loss = 0;
  double t_comm_s = 0;      // its last pull
  double t_comp_s = 0;      // its last gradient
  std::int64_t number = 0;  // sequence number of the minibatch, as in Push
};

/// What it is told.
struct Advice {
  double scale = 1;      // s, clipped
  double steps = 0;      // k_m
  double delay = 0;      // ℓ_delay
  bool in_vain = false;  // the gradient will be dropped; it may leave off
};

/// How good the predictors were and what they cost: the slides' figure 6 and table 5.
struct PredictorRecord {
  std::vector<float> predicted_loss, actual_loss, predicted_steps, actual_steps;  // by report
  double loss_seconds = 0, step_seconds = 0;                                      // all together
};

class LossCompensation {
 public:
  LossCompensation(const PsConfig& config, int workers, std::uint64_t seed);

  Advice report(int worker, const Report& report);
  void left(int worker);
  const PredictorRecord& record() const { return record_; }

  std::vector<float> save() const;
  void load(std::span<const float> state);

 private:
  PsConfig config_;
  Reading reading_;
  LossPredictor loss_;
  StepPredictor steps_;
  std::int64_t reports_ = 0;
  std::vector<std::int64_t> last_report_;  // by worker, −1: never; the slides' `iter` holds no more than this
  std::vector<float> predicted_steps_;     // by worker, for its next visit
  float predicted_loss_ = 0;
  PredictorRecord record_;
};

}  // namespace paceline::ps
