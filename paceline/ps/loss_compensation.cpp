#include "paceline/ps/loss_compensation.h"

#include <algorithm>
#include <cmath>

#include "paceline/base/clock.h"
#include "paceline/base/error.h"

namespace paceline::ps {
namespace {

constexpr float kMostReports = 1 << 20;  // a worker that has reported nothing for longer has never done so

}  // namespace

LossCompensation::LossCompensation(const PsConfig& config, int workers, std::uint64_t seed)
    : config_(config),
      reading_(find(readings(), "reading", config.reading).make),
      loss_(config, seed),
      steps_(config, workers, seed),
      last_report_(static_cast<std::size_t>(workers), -1),
      predicted_steps_(static_cast<std::size_t>(workers), 0) {}

Advice LossCompensation::report(int worker, const Report& report) {
  const auto m = static_cast<std::size_t>(worker);
  if (m >= last_report_.size()) last_report_.resize(m + 1, -1), predicted_steps_.resize(m + 1, 0);
  const SteadyClock clock;
  const Nanoseconds began = clock.now();
  const std::int64_t between = last_report_[m] < 0 ? 0 : reports_ - last_report_[m] - 1;  // iterations of the others
  const double ahead = steps_.observe(worker, between, report.t_comm_s, report.t_comp_s);
  const Nanoseconds halfway = clock.now();
  const auto k = static_cast<std::int64_t>(std::llround(std::min(ahead, static_cast<double>(config_.longest))));
  const LossForecast forecast = loss_.observe(report.loss, k, config_.reading == "chain_rule");
  const Nanoseconds done = clock.now();

  record_.step_seconds += seconds(halfway - began), record_.loss_seconds += seconds(done - halfway);
  if (reports_ > 0) {
    record_.predicted_loss.push_back(predicted_loss_), record_.actual_loss.push_back(static_cast<float>(report.loss));
    const bool before = last_report_[m] >= 0;  // its first visit has no steps behind it
    record_.predicted_steps.push_back(before ? predicted_steps_[m] : NAN);
    record_.actual_steps.push_back(before ? static_cast<float>(between) : NAN);
  }
  predicted_loss_ = static_cast<float>(forecast.next), predicted_steps_[m] = static_cast<float>(ahead);
  last_report_[m] = reports_++;

  double scale = reading_({.loss = report.loss, .lambda = config_.lc_lambda, .steps = static_cast<double>(k), .forecast = forecast});
  if (!std::isfinite(scale)) scale = 1;
  if (config_.reading != "literal") scale = std::clamp(scale, config_.clip_low, config_.clip_high);
  return {.scale = scale, .steps = static_cast<double>(k), .delay = forecast.sum};
}

void LossCompensation::left(int worker) {
  if (static_cast<std::size_t>(worker) < last_report_.size()) last_report_[static_cast<std::size_t>(worker)] = -1;
  steps_.forget(worker);
}

// Lengths first, then: reports, the last report and the predicted steps of each worker, the predicted loss, the two predictors. Counts are
// exact in floats up to 2²⁴ reports, which is past any run; beyond it only their differences matter.
std::vector<float> LossCompensation::save() const {
  const std::vector<float> loss = loss_.save(), steps = steps_.save();
  std::vector<float> all = {static_cast<float>(last_report_.size()), static_cast<float>(loss.size()), static_cast<float>(steps.size()),
                            predicted_loss_};
  for (const std::int64_t last : last_report_) all.push_back(last < 0 ? -1.0f : static_cast<float>(reports_ - last));
  all.insert(all.end(), predicted_steps_.begin(), predicted_steps_.end());
  all.insert(all.end(), loss.begin(), loss.end());
  all.insert(all.end(), steps.begin(), steps.end());
  return all;
}

void LossCompensation::load(std::span<const float> state) {
  const ConfigError damaged("the checkpoint's predictors are damaged");
  const auto length = [&](std::size_t i) {
    const bool sound = i < state.size() && state[i] >= 0 && state[i] <= static_cast<float>(state.size());
    return sound ? static_cast<std::size_t>(state[i]) : throw damaged;
  };
  const std::size_t workers = length(0), loss = length(1), steps = length(2);
  if (state.size() != 4 + 2 * workers + loss + steps) throw damaged;
  const std::vector<float> before = loss_.save();
  loss_.load(state.subspan(4 + 2 * workers, loss));
  try {
    steps_.load(state.subspan(4 + 2 * workers + loss, steps));
  } catch (const ConfigError&) {
    loss_.load(before);
    throw;
  }
  predicted_loss_ = state[3];
  last_report_.assign(workers, -1), predicted_steps_.assign(workers, 0);
  reports_ = static_cast<std::int64_t>(kMostReports);  // only differences matter
  for (std::size_t m = 0; m < workers; ++m) {
    if (state[4 + m] >= 0 && state[4 + m] <= kMostReports) last_report_[m] = reports_ - static_cast<std::int64_t>(state[4 + m]);
    predicted_steps_[m] = state[4 + workers + m];
  }
}

}  // namespace paceline::ps
