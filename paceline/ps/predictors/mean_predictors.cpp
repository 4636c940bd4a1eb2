#include <cmath>

#include "paceline/base/error.h"
#include "paceline/ps/predictors/factories.h"
#include "paceline/ps/predictors/running_mean.h"
#include "paceline/ps/predictors/state_list.h"

namespace paceline::ps {
namespace {

class MeanLosses final : public LossPredictor {
 public:
  explicit MeanLosses(float newest) : mean_(newest) {}

  LossForecast observe(double loss, std::int64_t steps, bool) override {
    if (const auto value = static_cast<float>(loss); std::isfinite(value)) mean_.take(value);
    if (mean_.count == 0) return {};
    const auto count = static_cast<double>(steps);
    return {.sum = count * mean_.mean, .derivative = count * mean_.weight(), .next = mean_.mean};
  }

  std::vector<float> save() const override { return {mean_.mean, mean_.count}; }
  void load(std::span<const float> state) override {
    check_length(state, 2, "loss predictor");
    mean_.mean = state[0], mean_.count = state[1];
  }

 private:
  RunningMean mean_;
};

class MeanSteps final : public StepPredictor {
 public:
  explicit MeanSteps(float newest) : newest_(newest) {}

  double observe(int worker, std::int64_t steps, double, double) override {
    Worker& visitor = at(worker);
    if (visitor.visits++ > 0) visitor.mean.take(static_cast<float>(steps));
    return visitor.mean.count > 0 ? visitor.mean.mean : static_cast<double>(steps);
  }

  void forget(int worker) override { at(worker) = Worker{RunningMean(newest_)}; }

  std::vector<float> save() const override {
    std::vector<float> state;
    for (const Worker& worker : workers_) state.insert(state.end(), {worker.mean.mean, worker.mean.count, worker.visits});
    return state;
  }

  void load(std::span<const float> state) override {
    check_length(state, state.size() / 3 * 3, "step predictor");
    workers_.clear();
    for (std::size_t i = 0; i < state.size(); i += 3) {
      Worker& worker = at(static_cast<int>(i / 3));
      worker.mean.mean = state[i], worker.mean.count = state[i + 1], worker.visits = state[i + 2];
    }
  }

 private:
  struct Worker {
    RunningMean mean;
    float visits = 0;
  };

  Worker& at(int worker) {
    ensure(worker >= 0, "workers are numbered from 0");
    const auto index = static_cast<std::size_t>(worker);
    if (index >= workers_.size()) workers_.resize(index + 1, Worker{RunningMean(newest_)});
    return workers_[index];
  }

  float newest_;
  std::vector<Worker> workers_;
};

}  // namespace

std::unique_ptr<LossPredictor> make_mean_losses(float newest) { return std::make_unique<MeanLosses>(newest); }
std::unique_ptr<StepPredictor> make_mean_steps(float newest) { return std::make_unique<MeanSteps>(newest); }

}  // namespace paceline::ps
