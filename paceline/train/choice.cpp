#include "paceline/train/choice.h"

#include <algorithm>
#include <charconv>

#include "paceline/base/error.h"

namespace paceline::train {
namespace {

bool of_same_entrant(const Contestant& a, const Contestant& b) {
  return a.algorithm == b.algorithm && a.clock == b.clock && a.workers == b.workers;
}

/// The number in "key=number"; not a number where it is none.
double number_in(const std::string& setting) {
  double number = NAN;
  const char *begin = setting.data() + setting.find('=') + 1, *end = setting.data() + setting.size();
  const auto read = std::from_chars(begin, end, number);
  return read.ec == std::errc() && read.ptr == end ? number : NAN;
}

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

}  // namespace

Choice choose(const Entrant& entrant, const std::vector<Outcome>& outcomes) {
  Choice made{.contestant = entrant.contestant, .tried = {}, .edges = {}};
  for (const auto& point : entrant.points) {
    double sum = 0, count = 0;
    for (const Outcome& outcome : outcomes)
      if (of_same_entrant(outcome.contestant, entrant.contestant) && outcome.contestant.point == point) sum += outcome.final_error, ++count;
    made.tried.push_back({.point = point, .error = count > 0 ? sum / count : NAN});
  }
  const auto worse = [](const Tried& a, const Tried& b) { return std::isnan(b.error) ? !std::isnan(a.error) : a.error < b.error; };
  const auto best = std::ranges::min_element(made.tried, worse);
  ensure(best != made.tried.end(), "a grid has a point");
  made.all_diverged = std::isnan(best->error);
  made.contestant.point = best->point;
  for (std::size_t axis = 0; axis < best->point.size() && !made.all_diverged; ++axis)
    if (at_the_edge(made.tried, axis, best->point[axis])) made.edges.push_back(best->point[axis].substr(0, best->point[axis].find('=')));
  return made;
}

}  // namespace paceline::train
