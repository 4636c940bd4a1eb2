#include "paceline/observe/chart_axis.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace paceline::observe {
namespace {

/// The round distance that cuts the interval into about `count` parts.
double round_step(double low, double high, int count) {
  const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough))), lead = rough / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  const double step = round_step(low, high, count);
  std::vector<double> ticks;
  // Tolerance for rounding: 0.3 / 0.1 is not exactly 3.
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double k = first; k <= last; ++k) ticks.push_back(k * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9)), last = static_cast<int>(std::ceil(std::log10(high) - 1e-9));
  const int every = std::max(1, (last - first) / 6);
  std::vector<double> ticks;
  for (int power = first; power <= last; power += every) {
    const double decade = std::pow(10, power);
    ticks.push_back(decade);
    if (last - first <= 3 && power < last) ticks.insert(ticks.end(), {2 * decade, 5 * decade});
  }
  return ticks;
}

std::string tick_text(double value, double step, Axis::Unit unit) {
  if (value == 0) return unit == Axis::Unit::percent ? "0%" : "0";
  struct Suffix {
    double factor;
    const char* text;
  };
  static constexpr Suffix kLarge[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  const double size = std::abs(value) * (1 + 1e-9);  // 0.1 + 0.2 is not exactly 0.3
  if (unit == Axis::Unit::number && size < 1e-3) return fmt::format("{:.3g}", value);
  const auto fits = [&](const Suffix& suffix) { return size >= suffix.factor; };
  const Suffix suffix = unit == Axis::Unit::percent ? Suffix{0.01, "%"} : size < 1 ? Suffix{1, ""} : *std::ranges::find_if(kLarge, fits);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step / suffix.factor) - 1e-9)));
  return fmt::format("{:.{}f}{}", value / suffix.factor, decimals, suffix.text);
}

Scale::Scale(const Axis& axis, std::span<const double> values, int tick_count, bool whole) : log_(axis.log) {
  double low = INFINITY, high = -INFINITY;
  for (double value : values)
    if (holds(value)) low = std::min(low, value), high = std::max(high, value);
  const double most_seen = high;
  if (low > high) low = log_ ? 1 : 0, high = log_ ? 10 : 1;  // no values yet
  if (!log_ && low > 0 && low < 0.4 * high) low = 0;         // close enough to zero to include it
  if (std::isfinite(axis.least)) low = axis.least;
  if (std::isfinite(axis.most)) high = axis.most;
  // A single value, or an interval so short that no double counts the ticks in it: adds some room around it.
  if (!(high - low > 1e-9 * std::max(std::abs(low), std::abs(high)))) {
    const double room = std::max(1e-6, 0.05 * std::abs(low));
    high = log_ ? low * 10 : high + room;
    if (!log_ && !std::isfinite(axis.least)) low -= room;
  }

  const std::vector<double> ticks = log_ ? log_ticks(low, high) : round_ticks(low, high, tick_count);
  if (whole) {
    // The ticks just outside the values; a logarithmic axis has more of them than it needs.
    const auto above = std::ranges::find_if(ticks, [&](double tick) { return tick >= high * (1 - 1e-9); });
    const auto below = std::ranges::find_if(ticks.rbegin(), ticks.rend(), [&](double tick) { return tick <= low * (1 + 1e-9); });
    high = above == ticks.end() ? ticks.back() : *above;
    low = below == ticks.rend() ? ticks.front() : *below;
  }
  if (axis.unit == Axis::Unit::percent && most_seen <= 1) high = std::min(high, 1.0);  // a share cannot exceed 100%
  low_ = bend(low);
  high_ = bend(high);
  for (double tick : ticks) {
    const double at = place(tick);
    if (at > -1e-6 && at < 1 + 1e-6) ticks_.push_back({at, tick_text(tick, log_ ? tick : ticks[1] - ticks[0], axis.unit)});
  }
}

bool Scale::holds(double value) const { return std::isfinite(value) && (!log_ || value > 0); }

double Scale::bend(double value) const { return log_ ? std::log10(value) : value; }

double Scale::place(double value) const { return (bend(value) - low_) / (high_ - low_); }

}  // namespace paceline::observe
