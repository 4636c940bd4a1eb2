#include "paceline/tensor/owners.h"

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::tensor {

Owners::Owners(const std::vector<OwnedRange>& ranges) {
  for (const OwnedRange& range : ranges) {
    ensure(range.begin == length() && range.end >= range.begin, "owned ranges ascend without a gap");
    if (range.count() == 0) continue;
    if (!ranges_.empty() && ranges_.back().owner == range.owner) ranges_.back().end = range.end;
    else ranges_.push_back(range);
  }
}

std::vector<OwnedRange> Owners::within(std::int64_t begin, std::int64_t end) const {
  std::vector<OwnedRange> cut;
  for (auto range = std::ranges::upper_bound(ranges_, begin, {}, &OwnedRange::end); range != ranges_.end() && range->begin < end; ++range)
    cut.push_back({std::max(range->begin, begin), std::min(range->end, end), range->owner});
  return cut;
}

int Owners::of(std::int64_t element) const {
  const auto found = within(element, element + 1);
  ensure(!found.empty(), "every element of an arena has an owner");
  return found.front().owner;
}

bool Owners::shared(std::int64_t begin, std::int64_t end) const {
  return std::ranges::all_of(within(begin, end), [](const OwnedRange& range) { return range.owner == kEverybody; });
}

Shard::Shard(const Owners& owners, int rank, std::int64_t alignment) {
  for (const OwnedRange& range : owners.ranges()) {
    if (!range.held_by(rank)) continue;
    if (!held_.empty() && held_.back().end == range.begin) {
      held_.back().end = range.end;
    } else {
      const std::int64_t line = (length_ + alignment - 1) / alignment * alignment;
      held_.push_back({range.begin, range.end, line + range.begin % alignment});
    }
    length_ = held_.back().place + held_.back().end - held_.back().begin;
  }
}

std::vector<Shard::Held> Shard::within(std::int64_t begin, std::int64_t end) const {
  std::vector<Held> cut;
  for (auto held = std::ranges::upper_bound(held_, begin, {}, &Held::end); held != held_.end() && held->begin < end; ++held) {
    const std::int64_t first = std::max(held->begin, begin);
    cut.push_back({first, std::min(held->end, end), held->place + first - held->begin});
  }
  return cut;
}

}  // namespace paceline::tensor
