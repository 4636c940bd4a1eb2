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

struct Layout {
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
  bool operator==(const Layout&) const = default;
};

/// The first differences in one line: "fc.weight is [10, 84] here and [100, 84] there; …". Empty where there is none.
std::string difference(const Layout& here, const Layout& there);

std::string serialise(const Layout& layout);
/// Throws DataError where the text is no layout: entries outside the arena, counts that are not their shapes'.
Layout parse_layout(std::string_view text);

/// The same for the optimizers, and for compressors.
std::vector<optim::Segment> segments_of(const Layout& layout);
compress::Layout parts_of(const Layout& layout);

}  // namespace paceline::ps
