// The sums of minibatches that workers finish at their own pace, until they are taken.
#pragma once

#include "paceline/step/strategy.h"

namespace paceline::central {

/// The result of a minibatch.
struct Sums {
  double loss = 0, right = 0;
  std::int64_t targets = 0;
};

/// A minibatch whose loss is not finite is left out of the sums, as it is left out of the server's parameters.
class Finished {
 public:
  void add(const Sums& sums);
  /// What was added since the last call; NaN if only such minibatches were.
  step::StepResult take();

 private:
  Sums all_;
  std::int64_t refused_ = 0;  // targets
};

}  // namespace paceline::central
