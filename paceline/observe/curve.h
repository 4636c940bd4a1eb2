// curve.svg: the losses and accuracies of a run over its epochs, redrawn at evaluations and at the end. For a resumed run it includes the
// earlier epochs, from metrics.jsonl.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/observe/chart.h"
#include "paceline/observe/event.h"

namespace paceline::observe {

/// Reduces a long series to few points: means over blocks of equal length, which doubles when there are too many.
class ThinnedSeries {
 public:
  static constexpr std::size_t kMostPoints = 240;  // even

  void add(double x, double y);
  Series series(std::string name) const;

 private:
  struct Block {
    double x = 0, y = 0;  // means
    std::size_t count = 0;
  };
  static Block merge(const Block& a, const Block& b);

  std::vector<Block> blocks_;
  std::size_t block_length_ = 1;
};

class Curve final : public Listener {
 public:
  /// `metrics`: the run's record, whose listener gets every event first. The clock must outlive the listener.
  Curve(std::filesystem::path file, const Clock& clock, std::filesystem::path metrics = {})
      : file_(std::move(file)), metrics_(std::move(metrics)), clock_(clock) {}

  void on(const Event& event) override;

  Figure figure() const;

 private:
  void add(const Event& event);
  void write();

  std::filesystem::path file_, metrics_;
  const Clock& clock_;
  RunStarted run_;
  ThinnedSeries train_loss_, train_accuracy_;
  double first_epoch_ = 0, epoch_ = 0;  // the first epoch drawn; where the run is now
  std::vector<double> test_epoch_, test_loss_, test_accuracy_;
  std::optional<Nanoseconds> written_;
};

}  // namespace paceline::observe
