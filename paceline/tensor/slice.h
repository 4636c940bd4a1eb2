// The part of a tensor that a rank holds when the ranks of an axis share the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace paceline::tensor {

/// The axis whose ranks share a tensor.
enum class Across : std::uint8_t { tensor, data };

/// The runs of indices that are held along one dimension of the whole tensor. A combined attention projection has three: query,
/// key and value.
struct Slice {
  struct Run {
    std::int64_t first = 0, count = 0;
    bool operator==(const Run&) const = default;
  };

  std::int64_t dim = 0, all = 0;  // the dimension along which the whole is cut, and its length
  std::vector<Run> runs;          // ascending
  Across across = Across::tensor;

  std::int64_t count() const;  // how many indices are held
  bool operator==(const Slice&) const = default;
};

/// The part of the whole tensor that the slice holds.
at::Tensor cut(const at::Tensor& whole, const Slice& slice);

}  // namespace paceline::tensor
