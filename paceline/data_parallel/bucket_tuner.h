// Finds the fastest bucket size: tries several in the first steps of a run and keeps the best, the same on all workers.
//
// Used only if the buckets do not change the bits of a result, or if the recipe does not ask for repeatable runs.
#pragma once

#include <cstdint>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::data_parallel {

struct BucketPlan {
  std::int64_t bytes = 0;  // of a bucket; 0: one bucket
  bool overlap = false;
  bool by_unit = false;  // one bucket per unit, whatever its size
};

class BucketTuner {
 public:
  BucketTuner(std::vector<BucketPlan> candidates, comm::Communicator& comm) : candidates_(std::move(candidates)), comm_(comm) {}

  BucketPlan cut() const { return candidates_[now_]; }
  /// Records how long the last step took. Returns true if other buckets are to be used from now on. Collective when a choice is made.
  bool measured(double seconds);

 private:
  bool settled() const { return candidates_.size() == 1; }

  std::vector<BucketPlan> candidates_;
  comm::Communicator& comm_;
  std::size_t now_ = 0;
  int steps_ = 0;  // with the current buckets
  bool warm_ = false;
  std::vector<double> trials_;     // of the current buckets
  std::vector<double> medians_{};  // by candidate
};

}  // namespace paceline::data_parallel
