#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <string>

#include "paceline/base/error.h"
#include "paceline/tensor/batched_copy_cuda.h"

namespace paceline::tensor {
namespace {

constexpr int kThreads = 256;
// The copies of a launch fill a GPU together. So each gets only enough blocks for thousands of threads to read a large copy; a small copy
// leaves most of its blocks without work.
constexpr int kBlocksPerCopy = 64;

// blockIdx.y is the copy; the blocks of x share its values. Small copies leave most of their blocks without work, which costs next to
// nothing; large ones iterate.
__global__ void copy_kernel(const __grid_constant__ CopyTable table, bool add) {
  const auto& copy = table.copies[blockIdx.y];
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < copy.count; i += gridDim.x * kThreads) {
    const float value =
        copy.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(copy.values)[i]) : static_cast<const float*>(copy.values)[i];
    copy.place[i] = add ? copy.place[i] + value : value;
  }
}

}  // namespace

void launch_copies(const CopyTable& table, bool add, void* stream) {
  copy_kernel<<<dim3(kBlocksPerCopy, table.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table, add);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw Error(std::string("copying gradients on the GPU failed: ") + cudaGetErrorString(status));
}

}  // namespace paceline::tensor
