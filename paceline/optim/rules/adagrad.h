// Adagrad (Duchi, Hazan, Singer 2011), as torch::optim::Adagrad defines it (lr_decay 0, initial_accumulator_value 0):
//
//   g ← g + λ w;   s ← s + g²;   w ← w − rate · g / (√s + ε)
//
// With `downpour` on a parameter server it is DistBelief's (Dean et al. 2012): a separate rate for each parameter, kept on the server.
#pragma once

#include "paceline/optim/rules/element.h"

namespace paceline::optim {

struct Adagrad {
  static constexpr int kStates = 1;
  static constexpr std::array<std::string_view, 2> kStateNames = {"sum_of_squares"};
  static constexpr Norms kNorms = Norms::none;

  PACELINE_ELEMENT static void apply(const Step& step, const TensorFactors& tensor, float gradient, float& weight, float& sum, float&) {
    gradient += product(tensor.decay, weight);
    sum += product(gradient, gradient);
    weight -= product(step.rate, gradient / (square_root(sum) + step.epsilon));
  }

  template <class Config, class Make>
  static auto choose(const Config&, const Make& make) {
    return make(Adagrad());
  }
};

}  // namespace paceline::optim
