// RMSprop (Tieleman, Hinton 2012), as torch::optim::RMSprop defines it (not centred), and Akiba's warm-up from it to SGD.
//
//   rmsprop          g ← g + λ w;  s ← β₂ s + (1−β₂) g²;  v ← μ v + g / (√s + ε);                  w ← w − rate · v
//   rmsprop_warmup   the same with                        v ← μ v + (a + (1−a) r / (√s + ε)) · g
//
// a is the share of SGD, a function of the step t alone (sgd_share in optimizer.cpp), r = rmsprop_rate / rate of the step: the part of
// RMSprop has its own rate. From transition_center + transition_period / 2 on, a is 1 and the update is SGD with momentum (Akiba,
// Suzuki, Fukuda, "Extremely large minibatch SGD", 2017).
#pragma once

#include "paceline/optim/rules/element.h"
#include "paceline/optim/rules/sgd.h"

namespace paceline::optim {

/// s in both: the mean square, kept first so that it has the same index without a velocity.
template <Momentum kind>
struct Rmsprop {
  static constexpr int kStates = kind == Momentum::none ? 1 : 2;
  static constexpr std::array<std::string_view, 2> kStateNames = {"mean_square", "momentum"};
  static constexpr Norms kNorms = Norms::none;

  PACELINE_ELEMENT static void accumulate(const Step& step, float gradient, float& square) {
    square = product(step.beta2, square) + product(product(step.fresh2, gradient), gradient);
  }

  PACELINE_ELEMENT static void apply(const Step& step, const TensorFactors& tensor, float gradient, float& weight, float& square,
                                     float& velocity) {
    gradient += product(tensor.decay, weight);
    accumulate(step, gradient, square);
    float move = gradient / (square_root(square) + step.epsilon);
    if constexpr (kind != Momentum::none) move = velocity = product(step.momentum, velocity) + move;
    weight -= product(step.rate, move);
  }
};

struct RmspropWarmup {
  static constexpr int kStates = 2;
  static constexpr std::array<std::string_view, 2> kStateNames = {"mean_square", "momentum"};
  static constexpr Norms kNorms = Norms::none;

  PACELINE_ELEMENT static void apply(const Step& step, const TensorFactors& tensor, float gradient, float& weight, float& square,
                                     float& velocity) {
    gradient += product(tensor.decay, weight);
    Rmsprop<Momentum::heavy_ball>::accumulate(step, gradient, square);
    const float factor = step.sgd_share + step.rmsprop_share / (square_root(square) + step.epsilon);
    velocity = product(step.momentum, velocity) + product(factor, gradient);
    weight -= product(step.rate, velocity);
  }

  template <class Config, class Make>
  static auto choose(const Config&, const Make& make) {
    return make(RmspropWarmup());
  }
};

}  // namespace paceline::optim
