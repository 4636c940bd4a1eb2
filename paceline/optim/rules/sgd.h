// Stochastic gradient descent with weight decay and momentum, as torch::optim::SGD defines them (dampening 0):
//
//   g ← g + λ w;   v ← μ v + g;   w ← w − rate · v            Nesterov: w ← w − rate · (g + μ v)
//
// The velocity v does not include the rate. If it did (v ← μ v + rate · g; w ← w − v), a change of the rate would need the momentum
// correction v ← v · rate_new / rate_old (Goyal et al. 2017, section 3).
#pragma once

#include "paceline/optim/rules/element.h"

namespace paceline::optim {

enum class Momentum { none, heavy_ball, nesterov };

template <Momentum kind>
struct Sgd {
  static constexpr int kStates = kind == Momentum::none ? 0 : 1;
  static constexpr std::array<std::string_view, 2> kStateNames = {"momentum"};
  static constexpr Norms kNorms = Norms::none;

  PACELINE_ELEMENT static void apply(const Step& step, const TensorFactors& tensor, float gradient, float& weight, float& velocity,
                                     float&) {
    float move = product(tensor.trust, gradient + product(tensor.decay, weight));
    if constexpr (kind != Momentum::none) {
      velocity = product(step.momentum, velocity) + move;
      move = kind == Momentum::nesterov ? move + product(step.momentum, velocity) : velocity;
    }
    weight -= product(step.rate, move);
  }
};

/// Chooses among the variants of a rule that has momentum, and calls make(rule).
template <template <Momentum> class Rule>
struct WithMomentum {
  template <class Config, class Make>
  static auto choose(const Config& config, const Make& make) {
    if (config.nesterov) return make(Rule<Momentum::nesterov>());
    if (config.momentum != 0) return make(Rule<Momentum::heavy_ball>());
    return make(Rule<Momentum::none>());
  }
};

}  // namespace paceline::optim
