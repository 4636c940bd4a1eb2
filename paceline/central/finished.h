// The sums over minibatches that workers have finished, each at its own pace, since they were last taken.
#pragma once

#include "paceline/step/strategy.h"

namespace paceline::central {

/// Adds the result of a minibatch.
struct Sums {
  double loss = 0, right = 0;
  std::int64_t targets = 0;
};

/// A minibatch whose loss is not finite is excluded from the sums, just as its gradient is not applied.
class Finished {
 public:
  void add(const Sums& sums);
  /// The sums since the last call; NaN if every minibatch was excluded.
  step::StepResult take();

 private:
  Sums all_;
  std::int64_t refused_ = 0;  // targets of excluded minibatches
};

}  // namespace paceline::central
