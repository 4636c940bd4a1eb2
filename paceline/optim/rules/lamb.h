// LAMB (You et al. 2020): the Adam step of a tensor, scaled to the norm of its parameters:
//
//   u = m̂ / (√v̂ + ε) + λ w;   trust = ‖w‖ / ‖u‖;   w ← w − rate · trust · u
//
// The norm of u must be known before any parameter changes, so there are two passes: the first updates the moments, the second recomputes u
// from them and updates the parameters. Tensors exempt from weight decay, and those with ‖w‖ or ‖u‖ = 0, have trust 1.
#pragma once

#include "paceline/optim/rules/adam.h"

namespace paceline::optim {

struct Lamb : AdamMoments {
  static constexpr Norms kNorms = Norms::direction;

  PACELINE_ELEMENT static float direction(const Step& step, const TensorFactors& tensor, float weight, float first, float second) {
    return product(step.correction1, ratio(step, first, second)) + product(tensor.decay, weight);
  }

  PACELINE_ELEMENT static float trust(const Step&, double squared_weights, double squared_directions) {
    return squared_weights > 0 && squared_directions > 0 ? static_cast<float>(sqrt(squared_weights / squared_directions)) : 1.0f;
  }

  /// The second pass; the gradient is in the moments already.
  PACELINE_ELEMENT static void move(const Step& step, const TensorFactors& tensor, float& weight, float first, float second) {
    weight -= product(product(step.rate, tensor.trust), direction(step, tensor, weight, first, second));
  }

  template <class Config, class Make>
  static auto choose(const Config&, const Make& make) {
    return make(Lamb());
  }
};

}  // namespace paceline::optim
