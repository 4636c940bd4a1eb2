// Measured collectives: interpolation, and conversion from and to the text of a cluster file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/perf/cluster.h"

namespace paceline::perf {
namespace {

/// A quantity without its source.
double plain_quantity(std::string_view text, Dimension dimension) {
  return parse_quantity(fmt::format("{} (measured)", trimmed(text)), dimension).value;
}
std::string plain_text(double value, Dimension dimension) {
  const std::string text = text_of({value, Source::measured}, dimension);
  return text.substr(0, text.rfind(" ("));
}

}  // namespace

double CollectiveTimes::at(double bytes) const {
  const auto above = std::ranges::lower_bound(points, bytes, {}, &Point::bytes);
  if (above == points.begin()) return points.front().seconds;
  if (above == points.end()) return points.back().seconds * bytes / points.back().bytes;
  const Point& below = *std::prev(above);
  const double way = std::log(bytes / below.bytes) / std::log(above->bytes / below.bytes);
  return below.seconds * std::pow(above->seconds / below.seconds, way);
}

void parse_times(std::string_view text, CollectiveTimes& into) {
  const auto open = std::min(text.find('('), text.size());
  into.source = parse_quantity(fmt::format("1 x {}", text.substr(open)), Dimension::factor).source;
  into.points.clear();
  for (const std::string& item : items_of(text.substr(0, open))) {
    const auto colon = item.find(':');
    if (colon == std::string::npos)
      throw ConfigError(fmt::format("must have sizes with their times, like \"1024 B: 6 us, 1 MB: 300 us (measured)\", not \"{}\"", item));
    into.points.push_back(
        {plain_quantity(item.substr(0, colon), Dimension::bytes), plain_quantity(item.substr(colon + 1), Dimension::time)});
    if (into.points.size() > 1 && into.points.end()[-2].bytes >= into.points.back().bytes)
      throw ConfigError(fmt::format("must name its sizes from small to large; \"{}\" is not larger than the one before it", item));
  }
  if (into.points.empty()) throw ConfigError(fmt::format("has no size: \"{}\"", text));
}

std::string times_text(const CollectiveTimes& times) {
  std::vector<std::string> points;
  for (const CollectiveTimes::Point& point : times.points)
    points.push_back(fmt::format("{}: {}", plain_text(point.bytes, Dimension::bytes), plain_text(point.seconds, Dimension::time)));
  return fmt::format("{} ({})", fmt::join(points, ", "), name_of(times.source));
}

std::optional<double> measured_seconds(const Cluster& cluster, std::string_view collective, std::string_view algorithm, std::int64_t ranks,
                                       std::int64_t per_host, double bytes) {
  const auto found = std::ranges::find_if(cluster.collectives, [&](const CollectiveTimes& times) {
    return times.collective == collective && times.algorithm == algorithm && times.ranks == ranks && times.per_host == per_host;
  });
  if (found == cluster.collectives.end()) return std::nullopt;
  return found->at(bytes);
}

}  // namespace paceline::perf
