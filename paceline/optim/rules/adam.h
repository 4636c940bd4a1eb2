// Adam (Kingma, Ba 2015) and AdamW (Loshchilov, Hutter 2019), as torch::optim::Adam and AdamW define them:
//
//   Adam: g ← g + λ w        AdamW: w ← w − rate · λ · w
//   m ← β₁ m + (1−β₁) g;   v ← β₂ v + (1−β₂) g²;   w ← w − rate/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε)
#pragma once

#include "paceline/optim/rules/element.h"

namespace paceline::optim {

struct AdamMoments {
  static constexpr int kStates = 2;
  static constexpr std::array<std::string_view, 2> kStateNames = {"first_moment", "second_moment"};

  PACELINE_ELEMENT static void accumulate(const Step& step, float gradient, float& first, float& second) {
    first = product(step.beta1, first) + product(step.fresh1, gradient);
    second = product(step.beta2, second) + product(product(step.fresh2, gradient), gradient);
  }

  /// m / (√v̂ + ε): the direction of Adam without the bias correction of m.
  PACELINE_ELEMENT static float ratio(const Step& step, float first, float second) {
    return first / (product(square_root(second), step.root_correction2) + step.epsilon);
  }
};

enum class Decay { in_gradient, decoupled };

template <Decay decay>
struct Adam : AdamMoments {
  static constexpr Norms kNorms = Norms::none;

  PACELINE_ELEMENT static void apply(const Step& step, const TensorFactors& tensor, float gradient, float& weight, float& first,
                                     float& second) {
    if constexpr (decay == Decay::in_gradient) gradient += product(tensor.decay, weight);
    else weight = product(1 - product(step.rate, tensor.decay), weight);
    accumulate(step, gradient, first, second);
    weight -= product(step.corrected_rate, ratio(step, first, second));
  }

  template <class Config, class Make>
  static auto choose(const Config&, const Make& make) {
    return make(Adam());
  }
};

}  // namespace paceline::optim
