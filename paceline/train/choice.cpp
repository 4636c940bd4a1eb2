#include "paceline/train/choice.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::train {
namespace {

using Point = std::vector<std::string>;

constexpr const char* kRate = "optim.rate";

bool of_same_entrant(const Contestant& a, const Contestant& b) {
  return a.algorithm == b.algorithm && a.clock == b.clock && a.workers == b.workers;
}

/// The number in "key=number"; NaN if there is none.
double number_in(const std::string& setting) {
  double number = NAN;
  const char *begin = setting.data() + setting.find('=') + 1, *end = setting.data() + setting.size();
  const auto read = std::from_chars(begin, end, number);
  return read.ec == std::errc() && read.ptr == end ? number : NAN;
}

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

bool at_the_edge(const std::vector<Tried>& tried, std::size_t axis, const std::string& chosen) {
  double least = INFINITY, most = -INFINITY;
  for (const Tried& other : tried) {
    const double number = number_in(other.point[axis]);
    if (std::isnan(number)) return false;  // names have no order
    least = std::min(least, number), most = std::max(most, number);
  }
  const double number = number_in(chosen);
  return least < most && (number == least || number == most);
}

/// The next setting beyond `edge`: the ratio to its neighbour on the other side is repeated. Empty if the values have no ratios.
std::optional<std::string> beyond(const std::vector<Point>& points, std::size_t axis, const std::string& edge) {
  const double last = number_in(edge);
  double neighbour = NAN;
  for (const Point& point : points) {
    const double number = number_in(point[axis]);
    if (!(number > 0)) return std::nullopt;
    if (number != last && !(std::abs(std::log(number / last)) >= std::abs(std::log(neighbour / last)))) neighbour = number;
  }
  const double next = last / neighbour * last;
  if (!std::isfinite(next)) return std::nullopt;
  return fmt::format("{}={:.6g}", key_of(edge), next);  // few digits: 0.1 / 0.2 * 0.1 is not exactly 0.05
}

}  // namespace

Choice choose(const Entrant& entrant, const std::vector<Outcome>& outcomes) {
  Choice made{.contestant = entrant.contestant, .tried = {}, .edges = {}};
  for (const auto& point : entrant.points) {
    double sum = 0, count = 0;
    for (const Outcome& outcome : outcomes)
      if (of_same_entrant(outcome.contestant, entrant.contestant) && outcome.contestant.point == point) sum += outcome.final_error, ++count;
    const bool added = made.tried.size() + entrant.added >= entrant.points.size();
    made.tried.push_back({.point = point, .error = count > 0 ? sum / count : NAN, .added = added});
  }
  const auto worse = [](const Tried& a, const Tried& b) { return std::isnan(b.error) ? !std::isnan(a.error) : a.error < b.error; };
  const auto best = std::ranges::min_element(made.tried, worse);
  ensure(best != made.tried.end(), "a grid has a point");
  made.all_diverged = std::isnan(best->error);
  made.contestant.point = best->point;
  for (std::size_t axis = 0; axis < best->point.size() && !made.all_diverged; ++axis)
    if (at_the_edge(made.tried, axis, best->point[axis])) made.edges.push_back(key_of(best->point[axis]));
  return made;
}

std::vector<Point> points_beyond(const Entrant& entrant, const Choice& choice) {
  std::vector<Point> grid = entrant.points;
  for (std::size_t axis = 0; axis < grid.front().size(); ++axis) {
    std::string edge = choice.contestant.point[axis];
    const auto before = [axis](const Point& a, const Point& b) { return number_in(a[axis]) < number_in(b[axis]); };
    if (choice.all_diverged && key_of(edge) == kRate) edge = (*std::ranges::min_element(entrant.points, before))[axis];
    else if (std::ranges::find(choice.edges, key_of(edge)) == choice.edges.end()) continue;
    const std::optional<std::string> next = beyond(entrant.points, axis, edge);
    if (!next) continue;
    for (std::size_t i = 0, count = grid.size(); i < count; ++i)
      if (grid[i][axis] == edge) grid.push_back(grid[i]), grid.back()[axis] = *next;
  }
  grid.erase(grid.begin(), grid.begin() + std::ssize(entrant.points));
  return grid;
}

}  // namespace paceline::train
