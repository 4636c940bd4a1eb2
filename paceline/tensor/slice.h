// Which part of a tensor a rank holds, if the ranks of an axis share it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace paceline::tensor {

/// The axis whose ranks share a tensor.
enum class Across : std::uint8_t { tensor, data };

/// The runs of indices that are held, along one dimension of the whole tensor. Query, key and value of one attention projection
/// are three runs.
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

/// The part of the whole tensor that the slice holds.
at::Tensor cut(const at::Tensor& whole, const Slice& slice);

}  // namespace paceline::tensor
