// Which part of a whole tensor a rank holds, where the ranks of an axis share it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace paceline::tensor {

/// The axis whose ranks hold a tensor together.
enum class Across : std::uint8_t { tensor, data };

/// Along one dimension of the whole tensor, the runs of indices that are held, one behind the other. Query, key and value of one attention
/// projection are three runs.
struct Slice {
  struct Run {
    std::int64_t first = 0, count = 0;
    bool operator==(const Run&) const = default;
  };

  std::int64_t dim = 0, all = 0;  // of the whole tensor: which dimension, and how long it is
  std::vector<Run> runs;          // ascending
  Across across = Across::tensor;

  std::int64_t count() const;  // indices that are held
  bool operator==(const Slice&) const = default;
};

/// What the slice holds of the whole tensor.
at::Tensor cut(const at::Tensor& whole, const Slice& slice);

}  // namespace paceline::tensor
