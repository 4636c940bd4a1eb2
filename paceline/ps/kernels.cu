#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/ps/kernels.h"

namespace paceline::ps::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;

template <class Formula>
__global__ void run(std::int64_t count, Formula formula) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) formula(i);
}

}  // namespace

template <class Formula>
void launch(void* stream, std::int64_t count, const Formula& formula) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
  run<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(count, formula);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(std::string("CUDA: launching a step of the parameter server failed: ") + cudaGetErrorString(status));
}

void settle(void* stream) {
  if (const cudaError_t status = cudaStreamSynchronize(static_cast<cudaStream_t>(stream)); status != cudaSuccess)
    throw Error(std::string("CUDA: a step of the parameter server failed: ") + cudaGetErrorString(status));
}

#define PACELINE_INSTANTIATE(Formula) template void launch<Formula>(void*, std::int64_t, const Formula&);
PACELINE_PS_FORMULAS(PACELINE_INSTANTIATE)
#undef PACELINE_INSTANTIATE

}  // namespace paceline::ps::cuda
