// Which part of a whole tensor a rank holds, where ranks share it (tensor parallelism).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace paceline::tensor {

/// Along one dimension of the whole tensor, the runs of indices that are held, one behind the other. Query, key and value of one attention
/// projection are three runs.
struct Slice {
  struct Run {
    std::int64_t first = 0, count = 0;
    bool operator==(const Run&) const = default;
  };

  std::int64_t dim = 0, all = 0;  // of the whole tensor: which dimension, and how long it is
  std::vector<Run> runs;          // ascending

  std::int64_t count() const;  // indices that are held
  bool operator==(const Slice&) const = default;
};

/// What the slice holds of the whole tensor.
at::Tensor cut(const at::Tensor& whole, const Slice& slice);

}  // namespace paceline::tensor
