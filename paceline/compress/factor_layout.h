// Where PowerSGD keeps the factors of a range's matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "paceline/compress/compressor.h"
#include "paceline/compress/low_rank.h"

namespace paceline::compress {

struct FactorLayout {
  FactorLayout(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed);

  struct Run {
    std::int64_t offset, count;
  };
  struct Matrix {
    std::int64_t offset;
    Shape shape;
    std::int64_t p, q;  // offsets of the factors among all P and all Q
    std::uint64_t seed;
    // Seeds of the columns that replace dependent ones.
    std::uint64_t seed_of_p() const { return seed + 2; }
    std::uint64_t seed_of_q() const { return seed + 1; }
  };

  std::vector<Run> gaps, dense;  // between tensors; what is sent unchanged
  std::vector<Matrix> matrices;
  std::int64_t dense_count = 0, p_count = 0, q_count = 0;  // numbers

  /// Q of the first step: random.
  std::vector<float> first_q() const;
};

}  // namespace paceline::compress
