// The layout of a chart's axis: its ticks, their labels, and the position of a value between 0 and 1.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/observe/chart.h"

namespace paceline::observe {

class Scale {
 public:
  /// `values`: everything the axis must show. `whole`: the axis ends at ticks rather than at the outermost values.
  Scale(const Axis& axis, std::span<const double> values, int tick_count, bool whole);

  bool holds(double value) const;
  double place(double value) const;

  struct Tick {
    double place;
    std::string text;
  };
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double bend(double value) const;

  bool log_;
  double low_ = 0, high_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace paceline::observe
