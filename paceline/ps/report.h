// What a worker reports to the server after its forward pass, and the server's answer.
#pragma once

#include <cstdint>
#include <vector>

namespace paceline::ps {

/// What a worker knows after its forward pass.
struct Report {
  double loss = 0;
  double t_comm_s = 0;      // its last pull
  double t_comp_s = 0;      // its last gradient
  std::int64_t number = 0;  // sequence number of the minibatch, as in Push
};

/// The answer.
struct Advice {
  double scale = 1;        // the factor for its gradient
  double steps = 0;        // lc_asgd: k_m
  double delay = 0;        // lc_asgd: ℓ_delay
  bool cancelled = false;  // the gradient will be dropped, so the worker may stop
};

/// How good a rule's predictors were and what they cost: figure 6 and table 5 of the LC-ASGD slides.
struct PredictorRecord {
  std::vector<float> predicted_loss, actual_loss, predicted_steps, actual_steps;  // by report
  std::vector<float> worker, steps_ahead, delay_loss, scale;                      // who reported; k, ℓ_delay and s of the answer
  double loss_seconds = 0, step_seconds = 0;                                      // of all reports together
};

}  // namespace paceline::ps
