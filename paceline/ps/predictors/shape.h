// What the two predictors share: the shape of their networks, and the streams that their weights are drawn from.
#pragma once

#include "paceline/ps/predictors/lstm.h"
#include "paceline/ps/predictors/predictor.h"

namespace paceline::ps {

/// Ranks of Purpose::init, far above those of a network's parameters. Part of a run's bits.
inline constexpr std::uint64_t kLossStream = std::uint64_t{1} << 32, kStepStream = kLossStream + 1;

inline LstmShape shape_of(const PredictorConfig& config, std::int64_t inputs) {
  return {.inputs = inputs, .layers = config.layers, .hidden = config.hidden};
}

}  // namespace paceline::ps
