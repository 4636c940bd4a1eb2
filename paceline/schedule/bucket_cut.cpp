#include "paceline/schedule/bucket_cut.h"

namespace paceline::schedule {
namespace {

/// Cuts from the end: in the order of layers, the last layers' gradients are sent first, and the remainder belongs to the first layers.
/// full(first, elements): whether the entries starting at `first` make a bucket.
template <class Full>
std::vector<BucketCut> cut_from_end(std::span<const BucketEntry> entries, const Full& full) {
  std::vector<BucketCut> cuts;
  std::int64_t elements = 0;
  std::size_t last = entries.size();
  for (std::size_t i = entries.size(); i-- > 0;) {
    if (entries[i].is_private) {
      elements = 0, last = i;
      continue;
    }
    elements += entries[i].elements;
    if (i > 0 && !entries[i - 1].is_private && !full(i, elements)) continue;
    cuts.push_back({i, last, elements});
    elements = 0, last = i;
  }
  return cuts;
}

}  // namespace

std::vector<BucketCut> cut_by_size(std::span<const BucketEntry> entries, std::int64_t elements) {
  return cut_from_end(entries, [&](std::size_t, std::int64_t count) { return elements > 0 && count >= elements; });
}

std::vector<BucketCut> cut_by_unit(std::span<const BucketEntry> entries) {
  return cut_from_end(entries, [&](std::size_t first, std::int64_t) { return entries[first - 1].unit != entries[first].unit; });
}

}  // namespace paceline::schedule
