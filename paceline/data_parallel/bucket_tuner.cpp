#include "paceline/data_parallel/bucket_tuner.h"

#include <algorithm>

namespace paceline::data_parallel {
namespace {

constexpr int kWarmUp = 3,
              kTrials = 5;  // steps; the first ones of every cut do not count, because they touch their memory for the first time

}  // namespace

bool BucketTuner::measured(double seconds) {
  if (settled()) return false;
  ++steps_;
  if (!warm_) {
    warm_ = steps_ >= kWarmUp;
    if (warm_) steps_ = 0;
    return false;
  }
  if (steps_ > 1) trials_.push_back(seconds);
  if (trials_.size() < kTrials) return false;
  std::ranges::nth_element(trials_, trials_.begin() + kTrials / 2);
  medians_.push_back(trials_[kTrials / 2]);
  trials_.clear();
  steps_ = 0;
  if (++now_ < candidates_.size()) return true;
  // The slowest worker's time determines the step's.
  comm_.run(comm::allreduce(medians_, {.op = comm::ReduceOp::max}));
  const auto best = std::ranges::min_element(medians_) - medians_.begin();
  candidates_ = {candidates_[static_cast<std::size_t>(best)]};
  now_ = 0;
  return true;
}

}  // namespace paceline::data_parallel
