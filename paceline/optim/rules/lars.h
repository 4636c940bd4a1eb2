// LARS (You, Gitman, Ginsburg 2017): SGD in which every tensor has its own rate, from the norms of its parameters and its gradient:
//
//   trust = η ‖w‖ / (‖g‖ + λ ‖w‖);   v ← μ v + trust · (g + λ w);   w ← w − rate · v
//
// Tensors exempt from weight decay (norms, biases) take the plain SGD step, and so does a tensor whose parameters or gradient are all zero.
#pragma once

#include "paceline/optim/rules/sgd.h"

namespace paceline::optim {

template <Momentum kind>
struct Lars : Sgd<kind> {
  static constexpr Norms kNorms = Norms::gradient;

  PACELINE_ELEMENT static float trust(const Step& step, double squared_weights, double squared_gradients) {
    const double gradients = fabs(static_cast<double>(step.scale)) * sqrt(squared_gradients);
    if (!(squared_weights > 0 && gradients > 0)) return 1;
    return static_cast<float>(step.trust / (gradients / sqrt(squared_weights) + step.decay));  // the formula above, divided by ‖w‖
  }
};

}  // namespace paceline::optim
