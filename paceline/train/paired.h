// What a comparison says of two algorithms whose runs had the same seeds: the same data, the same first weights, the same draws of the
// clock.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "paceline/train/outcome.h"

namespace paceline::train {

struct Difference {
  std::int64_t pairs = 0;                   // of which both sides are numbers
  double mean = NAN, standard_error = NAN;  // first less second; the error needs two pairs
};
Difference paired_difference(std::span<const std::pair<double, double>> pairs);

/// Seconds of training until the first evaluation with at least this accuracy, in %. Nothing if none had it.
std::optional<double> time_to(const Outcome& outcome, double accuracy);

}  // namespace paceline::train
