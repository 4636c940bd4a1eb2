// The share of a device's peak that is reached, by size: interpolation, and conversion from and to the text of a cluster file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/config.h"
#include "paceline/base/text.h"
#include "paceline/perf/cluster.h"

namespace paceline::perf {
namespace {

constexpr std::pair<std::string_view, double> kSizes[] = {{"Tflop", 1e12}, {"Gflop", 1e9}, {"Mflop", 1e6}, {"kflop", 1e3}, {"flop", 1}};

double positive(std::string_view number) {
  const Value value = parse_value(trimmed(number));
  if (const auto* real = std::get_if<double>(&value); real && *real > 0 && std::isfinite(*real)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value); whole && *whole > 0) return static_cast<double>(*whole);
  return 0;
}

constexpr double kMostShare = 4;  // Winograd's convolutions need fewer multiplications than are counted

double size_of(std::string_view text) {
  const std::string_view all = trimmed(text);
  const auto space = all.find(' ');
  if (space == std::string_view::npos) return 0;
  for (const auto& [unit, factor] : kSizes)
    if (trimmed(all.substr(space)) == unit) return positive(all.substr(0, space)) * factor;
  return 0;
}

double share_of(std::string_view text) {
  const std::string_view all = trimmed(text);
  return all.ends_with('%') ? positive(all.substr(0, all.size() - 1)) / 100 : 0;
}

/// A percentage that, read back and divided by 100, is the same share: 0.413 · 100 need not be 41.3.
double percent_of(double share) {
  const double rounded = std::round(share * 1e5) / 1e3, product = share * 100;
  for (const double percent : {rounded, product, std::nextafter(product, 0), std::nextafter(product, 200)})
    if (percent / 100 == share) return percent;
  return product;
}

std::string point_text(const Efficiency::Point& point) {
  const double percent = percent_of(point.share);
  for (const auto& [unit, factor] : kSizes)
    if (point.flops >= factor && point.flops / factor * factor == point.flops)
      return fmt::format("{} {}: {}%", point.flops / factor, unit, percent);
  return fmt::format("{} flop: {}%", point.flops, percent);
}

}  // namespace

double Efficiency::at(double flops) const {
  if (points.empty()) return 1;
  const auto above = std::ranges::lower_bound(points, flops, {}, &Point::flops);
  if (above == points.begin()) return points.front().share;
  if (above == points.end()) return points.back().share;
  const Point& below = *std::prev(above);
  const double way = std::log(flops / below.flops) / std::log(above->flops / below.flops);
  return below.share + way * (above->share - below.share);
}

Efficiency parse_efficiency(std::string_view text) {
  const auto open = std::min(text.find('('), text.size());
  Efficiency efficiency;
  efficiency.source = parse_quantity(fmt::format("1 x {}", text.substr(open)), Dimension::factor).source;
  for (const std::string& item : items_of(text.substr(0, open))) {
    const auto colon = std::min(item.find(':'), item.size());
    const Efficiency::Point point{size_of(item.substr(0, colon)), colon < item.size() ? share_of(item.substr(colon + 1)) : 0};
    if (point.flops <= 0 || point.share <= 0 || point.share > kMostShare)
      throw ConfigError(
          fmt::format("must have sizes with their share of the peak, above 0 and at most 400%, like \"1 Mflop: 41%, 1 Gflop: "
                      "93% (measured)\", not \"{}\"",
                      item));
    if (efficiency.known() && efficiency.points.back().flops >= point.flops)
      throw ConfigError(fmt::format("must name its sizes from small to large; \"{}\" is not larger than the one before it", item));
    efficiency.points.push_back(point);
  }
  if (!efficiency.known()) throw ConfigError(fmt::format("has no size: \"{}\"", text));
  return efficiency;
}

std::string text_of(const Efficiency& efficiency) {
  std::vector<std::string> points;
  for (const Efficiency::Point& point : efficiency.points) points.push_back(point_text(point));
  return fmt::format("{} ({})", fmt::join(points, ", "), name_of(efficiency.source));
}

}  // namespace paceline::perf
