// Six readings of LC-ASGD's gradient, ∇(ℓ_m + λ ℓ_delay). ℓ_delay does not depend on the parameters through the network, so every reading
// except the literal one multiplies ∇ℓ_m by a number s.
#pragma once

#include <span>

#include "paceline/base/registry.h"
#include "paceline/ps/predictors/predictor.h"

namespace paceline::ps {

/// The inputs of a reading.
struct Delay {
  double loss = 0;        // ℓ_m
  double lambda = 0;      // λ
  double steps = 0;       // k
  LossForecast forecast;  // Σ ℓ̂_j and its derivative by ℓ_m
};

/// A row of the table: s, and how it is computed and used.
struct Reading {
  double (*factor)(const Delay&);
  bool derives = false;  // uses the forecast's derivative
  bool clips = true;     // s is kept within ps.clip_low and ps.clip_high
};
std::span<const Entry<Reading>> readings();

}  // namespace paceline::ps
