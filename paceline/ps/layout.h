// What a model is to a parameter server: which tensors lie where in the arena. Worker and server must mean the same, so a worker shows its
// layout when it joins, and one that differs is refused with the difference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/compress/compressor.h"
#include "paceline/optim/optimizer.h"

namespace paceline::ps {

struct ArenaLayout {
  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t offset = 0, count = 0;  // in elements of the arena
    bool decay = true;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;   // ascending, not overlapping
  std::int64_t length = 0;      // of the arena, gaps included
  std::int64_t statistics = 0;  // floats of the batch norms' running statistics
  bool operator==(const ArenaLayout&) const = default;
};

/// The first differences in one line: "fc.weight is [10, 84] here and [100, 84] there; …". Empty where there is none.
std::string difference(const ArenaLayout& here, const ArenaLayout& there);

std::string serialise(const ArenaLayout& layout);
/// Throws DataError where the text is no layout: entries outside the arena, counts that are not their shapes'.
ArenaLayout parse_layout(std::string_view text);

/// The same for the optimizers, and for compressors.
std::vector<optim::Segment> segments_of(const ArenaLayout& layout);
compress::RangeLayout parts_of(const ArenaLayout& layout);

}  // namespace paceline::ps
