#include "paceline/train/predictor_scores.h"

#include <algorithm>
#include <map>
#include <utility>

#include "paceline/base/random.h"
#include "paceline/ps/predictors/running_mean.h"

namespace paceline::train {
namespace {

constexpr std::size_t kAround = 16;        // values on each side that the oracle knows
constexpr std::uint64_t kShuffleSeed = 1;  // arbitrary, but fixed: the same order every time

using Values = std::vector<double>;

/// For each method, its prediction of values[i] from the values before it; NaN for the first.
Values mean_before(const Values& values, float newest) {
  Values said(values.size(), NAN);
  ps::RunningMean mean(newest);
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (std::isfinite(values[i - 1])) mean.take(static_cast<float>(values[i - 1]));
    if (mean.count > 0) said[i] = mean.mean;
  }
  return said;
}

Values mean_around(const Values& values) {
  Values said(values.size(), NAN);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t begin = i > kAround ? i - kAround : 0, end = std::min(values.size(), i + kAround + 1);
    double sum = 0, count = 0;
    for (std::size_t j = begin; j < end; ++j)
      if (j != i && std::isfinite(values[j])) sum += values[j], ++count;
    said[i] = sum / count;
  }
  return said;
}

Values shuffled(Values values) {
  RandomStream(kShuffleSeed, Purpose::shuffle).shuffle(std::span(values));
  return values;
}

double root_mean_square(const Values& said, const Values& came) {
  double squares = 0, count = 0;
  for (std::size_t i = came.size() / 10; i < came.size(); ++i)
    if (std::isfinite(said[i]) && std::isfinite(came[i])) squares += std::pow(said[i] - came[i], 2), ++count;
  return std::sqrt(squares / count);
}

/// A method that predicts each worker's own series.
Values by_worker(const Values& values, const Values& workers, const auto& predict) {
  std::map<double, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i])) places[workers[i]].push_back(i);
  Values said(values.size(), NAN);
  for (const auto& [worker, own] : places) {
    Values series;
    for (const std::size_t place : own) series.push_back(values[place]);
    const Values found = predict(series);
    for (std::size_t i = 0; i < own.size(); ++i) said[own[i]] = found[i];
  }
  return said;
}

/// The sum of losses[i + 1 … i + steps[i]]; NaN if steps[i] is 0 or exceeds what follows.
Values sums_ahead(const Values& losses, const Values& steps) {
  Values sums(losses.size(), NAN);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto count = static_cast<std::size_t>(steps[i]);
    if (count == 0 || i + count >= losses.size()) continue;
    sums[i] = 0;
    for (std::size_t j = 1; j <= count; ++j) sums[i] += losses[i + j];
  }
  return sums;
}

/// k times the prediction of the next one.
Values flat_sums(const Values& said, const Values& steps) {
  Values sums(said.size(), NAN);
  for (std::size_t i = 0; i + 1 < said.size(); ++i) sums[i] = steps[i] * said[i + 1];
  return sums;
}

}  // namespace

std::vector<PredictorScore> score_predictors(const Outcome& o) {
  const Values& losses = o.actual_loss;
  if (losses.empty() || o.reporter.size() != losses.size() || o.delay_loss.size() != losses.size()) return {};
  const Values sums = sums_ahead(losses, o.steps_ahead);
  const auto row = [&](const char* name, const Values& loss, const Values& sum, const Values& steps) {
    return PredictorScore{.predictor = name,
                          .loss = root_mean_square(loss, losses),
                          .sum = root_mean_square(sum, sums),
                          .steps = root_mean_square(steps, o.actual_steps)};
  };
  const auto mean = [&](const char* name, float newest) {
    const auto predict = [newest](const Values& values) { return mean_before(values, newest); };
    const Values said = predict(losses);
    return row(name, said, flat_sums(said, o.steps_ahead), by_worker(o.actual_steps, o.reporter, predict));
  };
  const Values around = mean_around(losses);
  return {row("own", o.predicted_loss, o.delay_loss, o.predicted_steps),
          mean("last", 1),
          mean("ema", 0.1F),
          mean("constant", 0),
          row("shuffled", shuffled(o.predicted_loss), shuffled(o.delay_loss), shuffled(o.predicted_steps)),
          row("oracle", around, sums_ahead(around, o.steps_ahead), by_worker(o.actual_steps, o.reporter, mean_around))};
}

}  // namespace paceline::train
