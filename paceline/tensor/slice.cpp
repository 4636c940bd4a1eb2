#include "paceline/tensor/slice.h"

#include <ATen/ATen.h>

namespace paceline::tensor {

std::int64_t Slice::count() const {
  std::int64_t count = 0;
  for (const Run& run : runs) count += run.count;
  return count;
}

at::Tensor cut(const at::Tensor& whole, const Slice& slice) {
  std::vector<at::Tensor> parts;
  for (const Slice::Run& run : slice.runs) parts.push_back(whole.narrow(slice.dim, run.first, run.count));
  return parts.size() == 1 ? parts.front() : at::cat(parts, slice.dim);
}

}  // namespace paceline::tensor
