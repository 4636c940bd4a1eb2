#include "paceline/tensor/batched_copy.h"

#include <ATen/ATen.h>

#include "paceline/tensor/batched_copy_cuda.h"
#include "paceline/tensor/recorded.h"

namespace paceline::tensor {
namespace {

#if PACELINE_WITH_CUDA
bool fits_kernel(const BatchedCopy& copy) {
  const bool known = copy.values.scalar_type() == at::kBFloat16 || copy.values.scalar_type() == at::kFloat;
  return copy.place.is_cuda() && known && copy.place.scalar_type() == at::kFloat && copy.values.strides() == copy.place.strides() &&
         copy.values.is_non_overlapping_and_dense();
}
#endif

void copy_one(const BatchedCopy& copy, bool add) {
  if (add) copy.place.add_(copy.values);
  else copy.place.copy_(copy.values);
}

}  // namespace

void copy_together(std::span<const BatchedCopy> copies, bool add) {
#if PACELINE_WITH_CUDA
  CopyTable table;
  const auto launch = [&] {
    if (table.count > 0) launch_copies(table, add, current_stream(copies.front().place.device()));
    table.count = 0;
  };
  for (const BatchedCopy& copy : copies) {
    if (!fits_kernel(copy)) {
      copy_one(copy, add);
      continue;
    }
    table.copies[table.count++] = {copy.values.data_ptr(), copy.place.data_ptr<float>(), static_cast<int>(copy.place.numel()),
                                   copy.values.scalar_type() == at::kBFloat16};
    if (table.count == CopyTable::kMost) launch();
  }
  launch();
#else
  for (const BatchedCopy& copy : copies) copy_one(copy, add);
#endif
}

}  // namespace paceline::tensor
