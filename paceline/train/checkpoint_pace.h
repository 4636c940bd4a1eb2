// The checkpoint interval, unless the recipe sets it in steps: writing checkpoints may take at most a given share of the run's time.
//
// The cost of one is measured: the time for which training paused, and the CPU time of its writer. The next one may begin when cost ÷ share
// has passed since the last one began.
#pragma once

#include <algorithm>

namespace paceline::train {

class CheckpointPace {
 public:
  static constexpr double kLeastInterval = 60;  // seconds between two checkpoints in the middle of an epoch

  /// `now`: the start of the run, in seconds of any clock.
  CheckpointPace(double share, double now) : share_(share), began_(now) {}

  /// A checkpoint began; its costs are added as they become known.
  void begun(double now) { began_ = now, cost_ = 0, any_ = true; }
  void spent(double seconds) { cost_ += seconds; }

  bool limited() const { return share_ < 1; }
  /// Seconds between the beginning of the last one and that of the next.
  double interval() const { return !limited() ? 0 : share_ > 0 ? cost_ / share_ : kNever; }
  /// Whether one may be written at the end of an epoch. The first one always may: its cost is unknown, and the run then has something to
  /// resume from.
  bool affordable(double now) const { return !any_ ? share_ > 0 : now - began_ >= interval(); }
  /// Whether one is due, at any point of an epoch.
  bool due(double now) const { return share_ > 0 && limited() && now - began_ >= std::max(interval(), kLeastInterval); }

 private:
  static constexpr double kNever = 1e18;
  double share_, began_, cost_ = 0;  // began_: the last one, or the run
  bool any_ = false;
};

}  // namespace paceline::train
