// When a checkpoint may be written, unless the recipe sets that in steps: all of a run's checkpoints, with the one at its end, may take at
// most a given share of its time.
//
// The cost of one is measured: the time for which training paused, and the CPU time of a worker's writer. The next one may begin when what
// was spent, the cost of that one and of the one at the end, which may come at any moment, is no more than the share of the time so far.
// The one at the end costs the time of its writing, too: the run waits until it is on disk.
#pragma once

namespace paceline::train {

class CheckpointPace {
 public:
  static constexpr double kLeastInterval = 60;  // seconds between two checkpoints in the middle of an epoch

  /// `now`: the start of the run, in seconds of any clock. `guess`: the seconds that the first one may cost, and
  /// its writing may take.
  CheckpointPace(double share, double now, double guess) : share_(share), start_(now), began_(now), cost_(guess), writing_(guess) {}

  /// A checkpoint began; its costs are added as they become known.
  void begun(double now) { began_ = now, cost_ = writing_ = 0; }
  void spent(double seconds) { cost_ += seconds, total_ += seconds; }

  /// The seconds until it was on disk, while training continued.
  void wrote(double seconds) { writing_ += seconds; }

  bool limited() const { return share_ < 1; }
  /// Whether one may be written at the end of an epoch.
  bool affordable(double now) const { return share_ > 0 && (!limited() || total_ + 2 * cost_ + writing_ <= share_ * (now - start_)); }
  /// Whether one is due, at any point of an epoch.
  bool due(double now) const { return limited() && affordable(now) && now - began_ >= kLeastInterval; }

 private:
  double share_, start_, began_;  // began_: the last one, or the run
  double cost_, writing_;         // of the last one
  double total_ = 0;
};

}  // namespace paceline::train
