// LC-ASGD (Li, He, Ren, Mao 2020): ASGD whose gradient is that of the loss plus λ times the loss that the server predicts for the steps
// which the gradient will miss. The formula can be read in several ways (readings.h); each reading multiplies ∇ℓ by a number, which the
// server sends to the worker in answer to its loss, and which comes back with the push.
//
// The server's half (Algorithms 2 to 4): predicts from a worker's report how many steps its gradient will miss and the losses of those
// steps, and computes that number.
#include <algorithm>
#include <cmath>
#include <utility>

#include "paceline/base/clock.h"
#include "paceline/base/error.h"
#include "paceline/ps/config.h"
#include "paceline/ps/readings.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

constexpr float kMostReports = 1 << 20;  // a worker whose last report is older than this counts as never having reported
constexpr const char* kState = "predictors";

class LcAsgd final : public UpdateRule {
 public:
  explicit LcAsgd(const RuleSetup& setup);

  Needs needs() const override { return {.advises = true}; }
  std::string why_not_steps() const override { return "scales the gradient, which momentum and Adam would then not see"; }
  Advice on_report(int worker, const Report& report) override;
  void on_leave(int worker) override;
  const PredictorRecord* predictions() const override { return &record_; }
  std::vector<State> save() const override;
  void load(std::span<const State> rows) override;

 private:
  PsConfig config_;
  Reading reading_;
  std::unique_ptr<LossPredictor> loss_;
  std::unique_ptr<StepPredictor> steps_;
  std::int64_t reports_ = 0;
  std::vector<std::int64_t> last_report_;  // by worker, −1: never; the slides' `iter` holds no more than this
  std::vector<float> predicted_steps_;     // by worker, for its next visit
  float predicted_loss_ = 0;
  PredictorRecord record_;
};

const Predictor& predictor_of(const RuleSetup& setup) { return find(predictors(), "predictor", setup.config.predictor).make; }

LcAsgd::LcAsgd(const RuleSetup& setup)
    : config_(setup.config),
      reading_(find(readings(), "reading", setup.config.reading).make),
      loss_(predictor_of(setup).losses(setup.config, setup.seed)),
      steps_(predictor_of(setup).steps(setup.config, setup.workers, setup.seed)),
      last_report_(static_cast<std::size_t>(setup.workers), -1),
      predicted_steps_(static_cast<std::size_t>(setup.workers), 0) {}

Advice LcAsgd::on_report(int worker, const Report& report) {
  const auto m = static_cast<std::size_t>(worker);
  if (m >= last_report_.size()) last_report_.resize(m + 1, -1), predicted_steps_.resize(m + 1, 0);
  const SteadyClock clock;
  const Nanoseconds began = clock.now();
  const std::int64_t between = last_report_[m] < 0 ? 0 : reports_ - last_report_[m] - 1;  // iterations of the others
  const double ahead = steps_->observe(worker, between, report.t_comm_s, report.t_comp_s);
  const Nanoseconds halfway = clock.now();
  const auto k = static_cast<std::int64_t>(std::llround(std::min(ahead, static_cast<double>(config_.longest))));
  const LossForecast forecast = loss_->observe(report.loss, k, reading_.derives);
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

  double scale = reading_.factor({.loss = report.loss, .lambda = config_.lc_lambda, .steps = static_cast<double>(k), .forecast = forecast});
  if (!std::isfinite(scale)) scale = 1;
  if (reading_.clips) scale = std::clamp(scale, config_.clip_low, config_.clip_high);
  if (reports_ > 1) {
    record_.worker.push_back(static_cast<float>(worker)), record_.steps_ahead.push_back(static_cast<float>(k));
    record_.delay_loss.push_back(static_cast<float>(forecast.sum)), record_.scale.push_back(static_cast<float>(scale));
  }
  return {.scale = scale, .steps = static_cast<double>(k), .delay = forecast.sum};
}

void LcAsgd::on_leave(int worker) {
  if (static_cast<std::size_t>(worker) < last_report_.size()) last_report_[static_cast<std::size_t>(worker)] = -1;
  steps_->forget(worker);
}

// Lengths first, then: reports, the last report and the predicted steps of each worker, the predicted loss, the two predictors. Counts are
// exact in floats up to 2²⁴ reports, which is past any run; beyond it only their differences matter.
std::vector<UpdateRule::State> LcAsgd::save() const {
  const std::vector<float> loss = loss_->save(), steps = steps_->save();
  std::vector<float> all = {static_cast<float>(last_report_.size()), static_cast<float>(loss.size()), static_cast<float>(steps.size()),
                            predicted_loss_};
  for (const std::int64_t last : last_report_) all.push_back(last < 0 ? -1.0f : static_cast<float>(reports_ - last));
  all.insert(all.end(), predicted_steps_.begin(), predicted_steps_.end());
  all.insert(all.end(), loss.begin(), loss.end());
  all.insert(all.end(), steps.begin(), steps.end());
  return {{kState, std::move(all)}};
}

void LcAsgd::load(std::span<const State> rows) {
  const auto saved = std::ranges::find(rows, kState, &State::name);
  if (saved == rows.end()) return;
  const std::span<const float> state = saved->values;
  const ConfigError damaged("the checkpoint's predictors are damaged");
  const auto length = [&](std::size_t i) {
    const bool sound = i < state.size() && state[i] >= 0 && state[i] <= static_cast<float>(state.size());
    return sound ? static_cast<std::size_t>(state[i]) : throw damaged;
  };
  const std::size_t workers = length(0), loss = length(1), steps = length(2);
  if (state.size() != 4 + 2 * workers + loss + steps) throw damaged;
  const std::vector<float> before = loss_->save();
  loss_->load(state.subspan(4 + 2 * workers, loss));
  try {
    steps_->load(state.subspan(4 + 2 * workers + loss, steps));
  } catch (const ConfigError&) {
    loss_->load(before);
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

}  // namespace

std::unique_ptr<UpdateRule> make_lc_asgd(const RuleSetup& setup) { return std::make_unique<LcAsgd>(setup); }

}  // namespace paceline::ps
