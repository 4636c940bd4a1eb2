// Compares two algorithms seed by seed: their runs had the same data, the same initial weights and the same draws of the clock.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "paceline/train/outcome.h"

namespace paceline::train {

struct Difference {
  std::int64_t pairs = 0;                   // in which both values are finite
  double mean = NAN, standard_error = NAN;  // of first minus second; the error needs two pairs
};
Difference paired_difference(std::span<const std::pair<double, double>> pairs);

/// Seconds of training until the first evaluation with at least this accuracy, in percent. Nullopt if none reached it.
std::optional<double> time_to(const Outcome& outcome, double accuracy);

}  // namespace paceline::train
