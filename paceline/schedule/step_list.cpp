#include "paceline/schedule/step_list.h"

#include <algorithm>
#include <bit>

namespace paceline::schedule {

void StepList::add(Step::Kind kind, int peer, Range range) {
  if (range.size() > 0 || keep_empty_) steps_.push_back({kind, peer, range, round_});
}

void StepList::exchange(int to, Range out, Step::Kind arrival, int from, Range in) {
  send(to, out);
  add(arrival, from, in);
}

Steps StepList::take() && {
  std::ranges::stable_sort(steps_, {}, &Step::round);
  return std::move(steps_);
}

Team everyone(const Problem& problem) { return {.size = problem.size, .me = problem.rank, .around = problem.size}; }

Team from_root(const Problem& problem) {
  const int size = problem.size;
  return {.size = size, .me = (problem.rank - problem.root + size) % size, .first = problem.root, .around = size};
}

Blocks cut(Range whole, int parts) {
  return [=](int index) { return cut(whole, parts, index); };
}

int ceil_log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

}  // namespace paceline::schedule
