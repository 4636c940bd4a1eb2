// Where gradients are cut into buckets: at borders of tensors, starting from the end of the arena. Used to send buckets, and to write step
// programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace paceline::schedule {

struct BucketEntry {
  std::int64_t elements = 0;  // of the arena, padding included
  std::size_t unit = 0;
  bool is_private = false;  // in no bucket
};

struct BucketCut {
  std::size_t first = 0, last = 0;  // entries [first, last)
  std::int64_t elements = 0;
};

/// Buckets of at least `elements` each, except for a remainder at the beginning or before private entries; 0: as few as possible. The last
/// bucket of the arena comes first.
std::vector<BucketCut> cut_by_size(std::span<const BucketEntry> entries, std::int64_t elements);
/// One bucket per unit; several if there are private entries between.
std::vector<BucketCut> cut_by_unit(std::span<const BucketEntry> entries);

}  // namespace paceline::schedule
