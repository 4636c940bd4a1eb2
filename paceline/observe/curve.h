// curve.svg: the losses and the accuracies of a run over its epochs, drawn anew at evaluations and at the end.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/observe/chart.h"
#include "paceline/observe/event.h"

namespace paceline::observe {

/// A long series in few points: means over blocks of equal length, which double when there are too many.
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
  /// The clock must outlive the listener.
  Curve(std::filesystem::path file, const Clock& clock) : file_(std::move(file)), clock_(clock) {}

  void on(const Event& event) override;

  Figure figure() const;

 private:
  void write();

  std::filesystem::path file_;
  const Clock& clock_;
  RunStarted run_;
  ThinnedSeries train_loss_, train_accuracy_;
  double first_epoch_ = 0, epoch_ = 0;  // of this process; where it stands
  std::vector<double> test_epoch_, test_loss_, test_accuracy_;
  std::optional<Nanoseconds> written_;
};

}  // namespace paceline::observe
