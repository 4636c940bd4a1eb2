// Charts of lines or bars as self-contained SVG: panels in rows, each with its axes, its series and its legend. No script, no font and no
// style from elsewhere; colours that are legible on light and dark backgrounds.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::observe {

struct Series {
  std::string name;          // empty: not in the legend
  std::vector<double> x, y;  // of equal length; a point that is not finite leaves a gap
  bool markers = false;      // a dot at every point
  bool dashed = false;       // for what was predicted rather than measured
  int color = -1;            // that of the series with this index; -1: its own
};

struct Axis {
  enum class Unit { number, percent };

  std::string label;
  bool log = false;  // points that are not positive are left out
  Unit unit = Unit::number;
  double least = std::numeric_limits<double>::quiet_NaN();  // bounds; NaN: those of the data
  double most = std::numeric_limits<double>::quiet_NaN();
};

struct Panel {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  /// Names along x instead of numbers: y[i] of a series is its bar in group i. A dashed series is a line at y[0] across all groups.
  std::vector<std::string> groups = {};
};

struct Figure {
  std::string title, subtitle;
  std::vector<Panel> panels;
  int panel_width = 420, panel_height = 250;  // of the plotted area, in pixels
  int columns = 0;                            // panels of a row; 0: all of them
};

std::string to_svg(const Figure& figure);

/// About `count` round numbers (1, 2 or 5 times a power of ten apart), the first at or below `low` and the last at or above `high`.
std::vector<double> round_ticks(double low, double high, int count);

/// Powers of ten around the positive interval; with 2 and 5 of each decade if there are few.
std::vector<double> log_ticks(double low, double high);

/// A tick's label, with as many decimals as distinguish it from its neighbours, which are `step` away.
std::string tick_text(double value, double step, Axis::Unit unit);

}  // namespace paceline::observe
