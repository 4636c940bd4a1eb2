// How often checkpoints are written where the recipe gives no number of steps: so that they take no more than a share of the run's time.
//
// What one costs is measured: the time for which training stood still, and the processor's time that its writer took. The next one may
// begin when cost ÷ share has passed since the last one began.
#pragma once

#include <algorithm>

namespace paceline::train {

class CheckpointPace {
 public:
  static constexpr double kLeastInterval = 60;  // seconds between two in the middle of an epoch

  /// `now`: when the run begins, in seconds of any clock.
  CheckpointPace(double share, double now) : share_(share), began_(now) {}

  /// One began; what it costs is told as it becomes known.
  void begun(double now) { began_ = now, cost_ = 0, any_ = true; }
  void spent(double seconds) { cost_ += seconds; }

  bool limited() const { return share_ < 1; }
  /// Seconds between the beginning of the last one and that of the next.
  double interval() const { return !limited() ? 0 : share_ > 0 ? cost_ / share_ : kNever; }
  /// Whether one may be written at the end of an epoch. The first one always may: nothing is known of its cost, and a run has something to
  /// go on from.
  bool affordable(double now) const { return !any_ ? share_ > 0 : now - began_ >= interval(); }
  /// Whether one is wanted wherever the run stands.
  bool due(double now) const { return share_ > 0 && limited() && now - began_ >= std::max(interval(), kLeastInterval); }

 private:
  static constexpr double kNever = 1e18;
  double share_, began_, cost_ = 0;  // began_: the last one, or the run
  bool any_ = false;
};

}  // namespace paceline::train
