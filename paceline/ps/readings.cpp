#include "paceline/ps/readings.h"

#include <algorithm>
#include <cmath>

namespace paceline::ps {
namespace {

double literal(const Delay&) { return 1; }
double rescale(const Delay& d) { return (d.loss + d.lambda * d.forecast.sum) / d.loss; }
double normalised(const Delay& d) { return rescale(d) / (1 + d.lambda * d.steps); }
double square_root_of(const Delay& d) { return std::sqrt(std::max(normalised(d), 0.0)); }
double chain_rule(const Delay& d) { return 1 + d.lambda * d.forecast.derivative; }
double squared(const Delay& d) { return d.loss + d.lambda * d.forecast.sum; }

constexpr Entry<Reading> kReadings[] = {
    {"literal", "s = 1: the baseline, ASGD with Async-BN", {.factor = literal, .clips = false}},
    {"rescale", "s = (ℓ + λ ℓ_delay) / ℓ: grows with the delay", {rescale}},
    {"normalised", "s = (ℓ + λ ℓ_delay) / ((1 + λ k) ℓ): below 1 where the loss is predicted to fall", {normalised}},
    {"sqrt", "the square root of normalised: near a minimum, a gradient's length is about the root of the loss", {square_root_of}},
    {"chain_rule", "s = 1 + λ Σ ∂ℓ̂/∂ℓ: exact where predictions are functions of the loss", {.factor = chain_rule, .derives = true}},
    {"squared", "s = ℓ + λ ℓ_delay: the gradient of half its square", {squared}},
};

}  // namespace

std::span<const Entry<Reading>> readings() { return kReadings; }

}  // namespace paceline::ps
