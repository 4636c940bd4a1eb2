// Running mean and deviation, with which predictors scale every series to mean 0 and deviation 1.
//
// Welford's formulas for the first 1000 values, after which each counts a thousandth (exponential forgetting, because losses fall by orders
// of magnitude). A value is counted before it is standardised, which bounds the result by √999 for any input; the first value, and a
// constant series, become 0. The numbers are kept as floats, so that a checkpoint holds them exactly.
#pragma once

#include <algorithm>
#include <cmath>

#include "paceline/ps/predictors/state_list.h"

namespace paceline::ps {

class Standardiser {
 public:
  /// Counts a value and standardises it. Values that are not finite are not counted and become 0, the mean.
  float take(double given) {
    constexpr float kVisits = 1000;
    const auto value = static_cast<float>(given);
    if (!std::isfinite(value)) return 0;
    count_ = std::min(count_ + 1, kVisits);
    const double weight = 1.0 / count_, away = static_cast<double>(value) - mean_;
    const double variance = (1 - weight) * (static_cast<double>(deviation_) * deviation_ + weight * away * away);
    mean_ = static_cast<float>(mean_ + weight * away);
    deviation_ = static_cast<float>(std::sqrt(variance));
    return static_cast<float>((static_cast<double>(value) - mean_) / scale());
  }

  /// Converts back to the series' own units: the sum of `count` values, given their standardised sum.
  float restore(double sum, double count = 1) const { return static_cast<float>(count * mean_ + scale() * sum); }

  bool empty() const { return count_ == 0; }

  void add_to(StateList& parts) {
    for (float* number : {&count_, &mean_, &deviation_}) parts.emplace_back(number, 1);
  }

 private:
  /// A deviation below a hundred-thousandth of the mean is rounding error.
  double scale() const { return std::max({static_cast<double>(deviation_), 1e-5 * std::fabs(mean_), 1e-30}); }

  float count_ = 0, mean_ = 0, deviation_ = 0;
};

}  // namespace paceline::ps
