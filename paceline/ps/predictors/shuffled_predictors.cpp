#include <algorithm>
#include <array>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/ps/predictors/factories.h"
#include "paceline/ps/predictors/lstm_predictors.h"
#include "paceline/ps/predictors/shape.h"
#include "paceline/ps/predictors/state_list.h"

namespace paceline::ps {
namespace {

/// Keeps the latest forecasts, and gives out one of them at random.
template <std::size_t kNumbers>
class Shuffle {
 public:
  using Forecast = std::array<float, kNumbers>;

  Shuffle(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  Forecast exchange(const Forecast& fresh) {
    const auto turn = static_cast<std::uint64_t>(turns_++);
    if (kept_.size() < kMost) kept_.push_back(fresh);
    else kept_[turn % kMost] = fresh;
    return kept_[RandomStream(seed_, Purpose::shuffle, stream_, turn).below(kept_.size())];
  }

  /// Its own state, followed by that of the predictor whose forecasts it shuffles.
  std::vector<float> save(const std::vector<float>& predictor) const {
    std::vector<float> state = {turns_};
    for (const Forecast& forecast : kept_) state.insert(state.end(), forecast.begin(), forecast.end());
    state.insert(state.end(), predictor.begin(), predictor.end());
    return state;
  }

  void load(std::span<const float> state, auto& predictor, const char* what) {
    const float turns = state.empty() ? 0 : state.front();
    const std::size_t kept = turns >= 0 && turns < kMost ? static_cast<std::size_t>(turns) : kMost, length = 1 + kept * kNumbers;
    check_length(state, std::max(state.size(), length), what);
    predictor.load(state.subspan(length));
    turns_ = turns, kept_.resize(kept);
    for (std::size_t i = 0; i < kept; ++i)
      std::copy_n(state.begin() + static_cast<std::ptrdiff_t>(1 + i * kNumbers), kNumbers, kept_[i].begin());
  }

 private:
  static constexpr std::size_t kMost = 1024;

  std::uint64_t seed_, stream_;
  float turns_ = 0;
  std::vector<Forecast> kept_;
};

class ShuffledLosses final : public LossPredictor {
 public:
  ShuffledLosses(const PredictorConfig& config, std::uint64_t seed) : lstm_(config, seed), shuffle_(seed, kLossStream) {}

  /// Forecasts are of different numbers of steps, so a step's mean is what is given out.
  LossForecast observe(double loss, std::int64_t steps, bool wants_derivative) override {
    const LossForecast made = lstm_.observe(loss, std::max<std::int64_t>(steps, 1), wants_derivative);
    const auto asked = static_cast<double>(steps), count = std::max(asked, 1.0);
    const auto [mean, derivative, next] = shuffle_.exchange(
        {static_cast<float>(made.sum / count), static_cast<float>(made.derivative / count), static_cast<float>(made.next)});
    return {.sum = asked * mean, .derivative = asked * derivative, .next = next};
  }

  std::vector<float> save() const override { return shuffle_.save(lstm_.save()); }
  void load(std::span<const float> state) override { shuffle_.load(state, lstm_, "loss predictor"); }

 private:
  LstmLosses lstm_;
  Shuffle<3> shuffle_;
};

class ShuffledSteps final : public StepPredictor {
 public:
  ShuffledSteps(const PredictorConfig& config, int workers, std::uint64_t seed)
      : lstm_(config, workers, seed), shuffle_(seed, kStepStream) {}

  double observe(int worker, std::int64_t steps, double t_comm_s, double t_comp_s) override {
    return shuffle_.exchange({static_cast<float>(lstm_.observe(worker, steps, t_comm_s, t_comp_s))})[0];
  }
  void forget(int worker) override { lstm_.forget(worker); }

  std::vector<float> save() const override { return shuffle_.save(lstm_.save()); }
  void load(std::span<const float> state) override { shuffle_.load(state, lstm_, "step predictor"); }

 private:
  LstmSteps lstm_;
  Shuffle<1> shuffle_;
};

}  // namespace

std::unique_ptr<LossPredictor> make_shuffled_losses(const PredictorConfig& config, std::uint64_t seed) {
  return std::make_unique<ShuffledLosses>(config, seed);
}
std::unique_ptr<StepPredictor> make_shuffled_steps(const PredictorConfig& config, int workers, std::uint64_t seed) {
  return std::make_unique<ShuffledSteps>(config, workers, seed);
}

}  // namespace paceline::ps
