#include "paceline/schedule/held.h"

#include <algorithm>
#include <map>

namespace paceline::schedule {
namespace {

/// A set of elements, as ranges that neither overlap nor touch.
class Elements {
 public:
  bool overlap(Range range) const {
    const auto after = ranges_.lower_bound(range.end);
    return range.size() > 0 && after != ranges_.begin() && std::prev(after)->second > range.begin;
  }
  void add(Range range) {
    if (range.size() == 0) return;
    auto at = ranges_.upper_bound(range.end);
    while (at != ranges_.begin() && std::prev(at)->second >= range.begin) {
      --at;
      range = {std::min(range.begin, at->first), std::max(range.end, at->second)};
      at = ranges_.erase(at);
    }
    ranges_[range.begin] = range.end;
  }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;  // begin → end
};

}  // namespace

std::span<const Step> first_round(std::span<const Step> steps) {
  const auto end = std::ranges::find_if(steps, [&](const Step& step) { return step.round != steps.front().round; });
  return steps.first(static_cast<std::size_t>(end - steps.begin()));
}

std::vector<bool> held(std::span<const Step> round) {
  Elements sent, reduced;
  for (const Step& step : round)
    if (step.kind == Step::Kind::send) sent.add(step.range);
  std::vector<bool> result(round.size());
  for (std::size_t i = 0; i < round.size(); ++i) {
    if (round[i].kind == Step::Kind::collect) result[i] = true;
    if (round[i].kind != Step::Kind::reduce) continue;
    result[i] = sent.overlap(round[i].range) || reduced.overlap(round[i].range);
    reduced.add(round[i].range);
  }
  return result;
}

std::int64_t held_elements(std::span<const Step> steps) {
  std::int64_t elements = 0;
  while (!steps.empty()) {
    const std::span<const Step> round = first_round(steps);
    const std::vector<bool> is_held = held(round);
    for (std::size_t i = 0; i < round.size(); ++i) elements += is_held[i] ? round[i].range.size() : 0;
    steps = steps.subspan(round.size());
  }
  return elements;
}

}  // namespace paceline::schedule
