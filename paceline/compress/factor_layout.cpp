#include "paceline/compress/factor_layout.h"

#include <algorithm>

namespace paceline::compress {

FactorLayout::FactorLayout(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed) {
  std::int64_t end = 0;
  for (const Part& part : layout.parts) {
    gaps.push_back({end, part.offset - end});
    end = part.offset + part.count;
    const Shape shape{part.rows, part.columns, std::min({config.rank, part.rows, part.columns})};
    if (part.rows > 1 && shape.rank * (part.rows + part.columns) < part.count) {
      matrices.push_back({part.offset, shape, p_count, q_count, seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(part.offset) * 4});
      p_count += shape.rank * shape.rows;
      q_count += shape.rank * shape.columns;
    } else {
      dense.push_back({part.offset, part.count});
      dense_count += part.count;
    }
  }
  gaps.push_back({end, layout.length - end});
}

std::vector<float> FactorLayout::first_q() const {
  std::vector<float> q(static_cast<std::size_t>(q_count));
  for (const Matrix& matrix : matrices) fill_random(q.data() + matrix.q, matrix.shape.rank * matrix.shape.columns, matrix.seed);
  return q;
}

}  // namespace paceline::compress
