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

/// *result ← Σ aᵢ bᵢ; one block, whose threads' sums are added in their order.
__global__ void sum_products(std::int64_t count, const float* a, const float* b, double* result) {
  __shared__ double sums[kThreads];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int thread = 1; thread < kThreads; ++thread) sum += sums[thread];
  *result = sum;
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(status));
}

}  // namespace

double dot(void* stream, std::int64_t count, const float* a, const float* b) {
  const auto in_order = static_cast<cudaStream_t>(stream);
  double* on_device = nullptr;
  double result = 0;
  check(cudaMallocAsync(reinterpret_cast<void**>(&on_device), sizeof(double), in_order), "memory for a sum of the parameter server");
  sum_products<<<1, kThreads, 0, in_order>>>(count, a, b, on_device);
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t copied = cudaMemcpyAsync(&result, on_device, sizeof(double), cudaMemcpyDeviceToHost, in_order);
  cudaFreeAsync(on_device, in_order);
  check(launched, "launching a sum of the parameter server");
  check(copied, "reading a sum of the parameter server");
  settle(stream);
  return result;
}

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
