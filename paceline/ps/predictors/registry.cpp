#include "paceline/ps/predictors/factories.h"
#include "paceline/ps/predictors/lstm_predictors.h"

namespace paceline::ps {
namespace {

constexpr float kRepeat = 1, kExponential = 0.1, kOfAll = 0;  // the least weight of the newest value

template <float kNewest>
constexpr Predictor kMean = {[](const PredictorConfig&, std::uint64_t) { return make_mean_losses(kNewest); },
                             [](const PredictorConfig&, int, std::uint64_t) { return make_mean_steps(kNewest); }};

constexpr Entry<Predictor> kPredictors[] = {
    {"lstm",
     "two LSTMs, trained online: LC-ASGD's own",
     {[](const PredictorConfig& config, std::uint64_t seed) -> std::unique_ptr<LossPredictor> {
        return std::make_unique<LstmLosses>(config, seed);
      },
      [](const PredictorConfig& config, int workers, std::uint64_t seed) -> std::unique_ptr<StepPredictor> {
        return std::make_unique<LstmSteps>(config, workers, seed);
      }}},
    {"last", "the latest loss, and the worker's latest steps", kMean<kRepeat>},
    {"ema", "the exponential mean, with weight 0.1 for the newest value", kMean<kExponential>},
    {"constant", "the mean of everything so far", kMean<kOfAll>},
    {"shuffled", "the LSTMs' predictions in random order", {make_shuffled_losses, make_shuffled_steps}},
    {"recorded",
     "what came in an earlier run of the same seed: nearly an oracle",
     {[](const PredictorConfig& config, std::uint64_t) { return make_recorded_losses(config); },
      [](const PredictorConfig& config, int, std::uint64_t) { return make_recorded_steps(config); }}},
};

}  // namespace

std::span<const Entry<Predictor>> predictors() { return kPredictors; }

}  // namespace paceline::ps
