#include "paceline/perf/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>

namespace paceline::perf {
namespace {

/// Seconds of a message: latency and bandwidth.
double message(const std::vector<double>& values, double bytes) { return values[0] + bytes / values[1]; }

TEST(LeastSquares, FindsTheNumbersThatMadeTheMeasurements) {
  const std::vector<double> truth = {3e-6, 2e10};
  const auto residuals = [&](const std::vector<double>& values) {
    std::vector<double> errors;
    for (double bytes = 1e2; bytes < 1e9; bytes *= 3) errors.push_back(std::log(message(values, bytes) / message(truth, bytes)));
    return errors;
  };
  const Fitted found = fit({{"latency", 50e-6, 3}, {"bandwidth", 1e9, 3}}, residuals, 1e-3);
  EXPECT_NEAR(found.values[0] / truth[0], 1, 0.01);
  EXPECT_NEAR(found.values[1] / truth[1], 1, 0.01);
  EXPECT_GT(found.rounds, 1);
}

TEST(LeastSquares, WhatNobodyMeasuredStaysWhereItStarts) {
  const auto residuals = [](const std::vector<double>& values) { return std::vector<double>{std::log(values[0] / 5)}; };
  const Fitted found = fit({{"seen", 1, 2}, {"unseen", 7, 2}}, residuals, 1e-3);
  EXPECT_NEAR(found.values[0], 5, 0.01);
  EXPECT_DOUBLE_EQ(found.values[1], 7);
}

TEST(LeastSquares, OneWrongMeasurementDoesNotDecide) {
  const auto residuals = [](const std::vector<double>& values) {
    std::vector<double> errors(20, std::log(values[0] / 2));
    errors.push_back(std::log(values[0] / 40));
    return errors;
  };
  EXPECT_NEAR(fit({{"value", 1, 3}}, residuals, 0.02).values[0], 2, 0.05);
}

}  // namespace
}  // namespace paceline::perf
