// The mean of a series so far, as a prediction of its next value.
#pragma once

#include <algorithm>

namespace paceline::ps {

class RunningMean {
 public:
  /// `newest` is the least weight of the newest value: with 1 the mean is that value, with 0 it is the mean of all, between them
  /// exponential.
  explicit RunningMean(float newest) : newest_(newest) {}

  void take(float value) {
    ++count;
    mean += weight() * (value - mean);
  }
  /// Of the newest value in the mean: the mean's derivative by it.
  float weight() const { return std::max(newest_, 1 / count); }

  float mean = 0, count = 0;  // all that changes

 private:
  float newest_;
};

}  // namespace paceline::ps
