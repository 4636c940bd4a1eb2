// Predictions several steps ahead: each output is the input of the next step, and everything is differentiated with respect to the first
// input.
#pragma once

#include "paceline/ps/predictors/lstm.h"

namespace paceline::ps {

/// Memory for roll-outs of an LSTM with one input; the only result kept is the first step.
template <class T>
class RollOut {
 public:
  struct Forecast {
    T sum = 0, derivative = 0;  // Σ of the outputs; its derivative by the input, with the carried state and the weights held constant
  };

  explicit RollOut(const Lstm<T>& lstm) : step_(lstm.step()), dots_(lstm.step()), still_(lstm.state()) {}

  /// Makes `count` outputs from `input` and the state `before`. Stores the first step in `first`, even if the count is 0.
  Forecast run(const Lstm<T>& lstm, T input, const typename Lstm<T>::State& before, std::int64_t count, bool wants_derivative,
               typename Lstm<T>::Step& first) {
    Forecast forecast;
    T output = lstm.forward({&input, 1}, before, first), dot = 1;
    const typename Lstm<T>::Step* step = &first;
    for (std::int64_t index = 0; index < count; ++index) {
      if (index > 0) output = lstm.forward({&output, 1}, step->after, step_), step = &step_;
      if (wants_derivative) dot = lstm.tangent(*step, {&dot, 1}, index == 0 ? still_ : dots_.after, dots_);
      forecast.sum += output;
      forecast.derivative += wants_derivative ? dot : 0;
    }
    return forecast;
  }

 private:
  typename Lstm<T>::Step step_, dots_;
  typename Lstm<T>::State still_;  // zeros: the carried state does not depend on the input
};

}  // namespace paceline::ps
