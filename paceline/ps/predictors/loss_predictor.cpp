// The first step of a roll-out is what the next report trains on: the same input, state and weights. So a report of k steps costs k forward
// steps and one backward step, and the roll-out leaves the carried state as it was.
#include <algorithm>
#include <cmath>

#include "paceline/ps/predictors/lstm_predictors.h"
#include "paceline/ps/predictors/roll_out.h"
#include "paceline/ps/predictors/shape.h"
#include "paceline/ps/predictors/standardiser.h"
#include "paceline/ps/predictors/state_list.h"

namespace paceline::ps {

struct LstmLosses::State {
  State(const PredictorConfig& config, std::uint64_t seed)
      : lstm(shape_of(config, 1), config.rate, RandomStream(seed, Purpose::init, kLossStream)), longest(config.longest) {}

  StateList parts() {
    StateList parts = lstm.parts();
    standard.add_to(parts);
    parts.insert(parts.end(), {carried.hidden, carried.cell});
    for (float* number : {&input, &started, &sum, &derivative, &next}) parts.emplace_back(number, 1);
    return parts;
  }

  Lstm<float> lstm;
  std::int64_t longest;
  Standardiser standard;
  Lstm<float>::State carried = lstm.state();  // before `input`, the last loss
  float input = 0, started = 0;               // started: 1 once there was one
  Lstm<float>::Step first = lstm.step();      // from `carried` and `input`, by the present weights
  RollOut<float> roll_out{lstm};
  float sum = 0, derivative = 0, next = 0;  // of the last forecast
};

LstmLosses::LstmLosses(const PredictorConfig& config, std::uint64_t seed) : state_(std::make_unique<State>(config, seed)) {}
LstmLosses::~LstmLosses() = default;

LossForecast LstmLosses::observe(double loss, std::int64_t steps, bool wants_derivative) {
  State& s = *state_;
  if (std::isfinite(static_cast<float>(loss))) {
    s.input = s.standard.take(loss);
    if (s.started == 1) {
      s.lstm.train(s.first, s.input);
      std::swap(s.carried, s.first.after);
    }
    s.started = 1;
    const std::int64_t count = std::clamp<std::int64_t>(steps, 0, s.longest);
    const auto forecast = s.roll_out.run(s.lstm, s.input, s.carried, count, wants_derivative, s.first);
    s.sum = s.standard.restore(forecast.sum, static_cast<double>(count));
    s.derivative = forecast.derivative;
    s.next = s.standard.restore(s.first.output);
  }
  return {.sum = s.sum, .derivative = s.derivative, .next = s.next};
}

std::vector<float> LstmLosses::save() const { return joined(state_->parts()); }

void LstmLosses::load(std::span<const float> state) {
  const StateList parts = state_->parts();
  check_length(state, length_of(parts), "loss predictor");
  fill(parts, state);
  state_->lstm.forward({&state_->input, 1}, state_->carried, state_->first);
}

}  // namespace paceline::ps
