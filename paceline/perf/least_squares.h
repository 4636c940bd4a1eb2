// Fits a few positive numbers to measurements: Levenberg–Marquardt on their logarithms. Each number is drawn towards its starting value,
// the more so the smaller its spread, so that a number about which the measurements say nothing keeps its value. Outliers count less
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
  double cost = 0;  // of the remaining errors; of two fits to the same measurements, the better one has the lower cost
};

/// `noise`: the relative error that remains even with a good model.
Fitted fit(const std::vector<FitParameter>& parameters, const Residuals& residuals, double noise);

}  // namespace paceline::perf
