#include "paceline/central/finished.h"

#include <ATen/ATen.h>

#include <cmath>

namespace paceline::central {

void Finished::add(const Sums& sums) {
  if (std::isfinite(sums.loss)) all_.loss += sums.loss, all_.right += sums.right, all_.targets += sums.targets;
  else refused_ += sums.targets;
}

step::StepResult Finished::take() {
  if (all_.targets == 0 && refused_ > 0) all_.loss = NAN, all_.targets = refused_;
  step::StepResult result{at::tensor({all_.loss, all_.right}, at::kDouble), all_.targets};
  *this = {};
  return result;
}

}  // namespace paceline::central
