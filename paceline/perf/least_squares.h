// Fits a few positive numbers to measurements: Levenberg–Marquardt on their logarithms. Each is drawn towards where it starts as far as its
// spread says, so that what the measurements do not show stays where it was; single measurements that fit nothing count less
// (pseudo-Huber).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace paceline::perf {

struct FitParameter {
  std::string name;
  double start = 1;
  double spread = 1;  // standard deviation of its logarithm before anything is measured
};

/// By measurement: ln(predicted / measured).
using Residuals = std::function<std::vector<double>(const std::vector<double>& values)>;

struct Fitted {
  std::vector<double> values;  // by parameter
  int rounds = 0;
  double cost = 0;  // of the errors that are left; of two fits to the same measurements the better one has less
};

/// `noise`: the relative error that a good model has left.
Fitted fit(const std::vector<FitParameter>& parameters, const Residuals& residuals, double noise);

}  // namespace paceline::perf
