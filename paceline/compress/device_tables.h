// Layouts in GPU memory, as kernels read them.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "paceline/compress/compressor.h"
#include "paceline/compress/device_kernels.h"

namespace paceline::compress {

/// Cuts a layout's parts into units of `unit` values. bytes_of(n) is the code size of a part of n values, `head` the size of the scale in
/// front of every unit's bytes; head 0: units have no code of their own.
class TablesOnGpu {
 public:
  template <class Bytes>
  TablesOnGpu(const RangeLayout& layout, std::int64_t unit, std::int64_t head, const Bytes& bytes_of) {
    std::vector<gpu::Unit> units;
    std::vector<gpu::PartOnGpu> parts;
    std::int64_t code = 0;
    for (const Part& part : layout.parts) {
      parts.push_back({.offset = part.offset, .count = part.count, .code = code, .first_unit = std::ssize(units), .units = 0});
      std::int64_t at = code;
      for (std::int64_t begin = 0; begin < part.count; begin += unit) {
        const std::int64_t count = std::min(unit, part.count - begin);
        units.push_back({.at = part.offset + begin, .count = count, .code = at, .part = std::ssize(parts) - 1});
        at += head + count;
      }
      parts.back().units = std::ssize(units) - parts.back().first_unit;
      code += bytes_of(part.count);
    }
    units_ = gpu::allocate(units.size() * sizeof(gpu::Unit), units.data());
    parts_ = gpu::allocate(parts.size() * sizeof(gpu::PartOnGpu), parts.data());
    code_bytes_ = code;
    tables_ = {.units = static_cast<const gpu::Unit*>(units_.get()),
               .parts = static_cast<const gpu::PartOnGpu*>(parts_.get()),
               .unit_count = std::ssize(units),
               .part_count = std::ssize(parts)};
  }

  const gpu::Tables& tables() const { return tables_; }
  std::int64_t code_bytes() const { return code_bytes_; }

 private:
  std::shared_ptr<void> units_, parts_;
  gpu::Tables tables_;
  std::int64_t code_bytes_ = 0;
};

}  // namespace paceline::compress
