// A model as a parameter server sees it: where each tensor lies in the arena. Worker and server must agree, so a worker sends its layout
// when it joins. If the two differ, it is rejected with a message that says where.
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
  std::vector<Entry> entries;   // in ascending order, without overlaps
  std::int64_t length = 0;      // of the arena, gaps included
  std::int64_t statistics = 0;  // floats of the batch norms' running statistics
  bool operator==(const ArenaLayout&) const = default;
};

/// The first differences in one line: "fc.weight is [10, 84] here and [100, 84] there; …". Empty if there are none.
std::string difference(const ArenaLayout& here, const ArenaLayout& there);

std::string serialise(const ArenaLayout& layout);
/// Throws DataError if the text is not a valid layout: if an entry lies outside the arena, say, or a count contradicts its shape.
ArenaLayout parse_layout(std::string_view text);

/// The layout in the form that optimizers and compressors take.
std::vector<optim::Segment> segments_of(const ArenaLayout& layout);
compress::RangeLayout parts_of(const ArenaLayout& layout);

}  // namespace paceline::ps
