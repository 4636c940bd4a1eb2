#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/nn/masks_cuda.h"

namespace paceline::nn {
namespace {

/// splitmix64's finalizer: every bit of the input changes every bit of the output with probability one half.
__device__ std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 30, x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27, x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <class T>
__global__ void mask_kernel(T* mask, MaskShape shape, std::uint64_t seed, const std::int64_t* step, std::uint64_t place, float keep) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  const std::uint64_t key = mixed(seed + kGolden * static_cast<std::uint64_t>(*step));
  const T kept = static_cast<T>(1.0f / keep), dropped = static_cast<T>(0.0f);
  const std::int64_t row = shape.count * shape.inner, all = shape.outer * row;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += stride) {
    const std::int64_t in_whole = (i / row) * shape.all * shape.inner + shape.first * shape.inner + i % row;
    const std::uint64_t hash = mixed(key + kGolden * (place + static_cast<std::uint64_t>(in_whole) + 1));
    const float uniform = static_cast<float>(hash >> 40) * 0x1p-24f;  // of [0, 1), exact
    mask[i] = uniform < keep ? kept : dropped;
  }
}

template <class T>
void launch(void* mask, const MaskShape& shape, std::uint64_t seed, const std::int64_t* step, std::uint64_t place, double keep,
            void* stream) {
  constexpr int kThreads = 256, kMostBlocks = 2112;
  const std::int64_t count = shape.outer * shape.count * shape.inner;
  const int blocks = static_cast<int>(std::min<std::int64_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  mask_kernel<T><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<T*>(mask), shape, seed, step, place,
                                                                             static_cast<float>(keep));
}

}  // namespace

void launch_mask(MaskType type, void* mask, const MaskShape& shape, std::uint64_t seed, const std::int64_t* step, std::uint64_t place,
                 double keep, void* stream) {
  if (shape.outer * shape.count * shape.inner == 0) return;
  switch (type) {
    case MaskType::fp32: launch<float>(mask, shape, seed, step, place, keep, stream); break;
    case MaskType::fp64: launch<double>(mask, shape, seed, step, place, keep, stream); break;
    case MaskType::fp16: launch<__half>(mask, shape, seed, step, place, keep, stream); break;
    case MaskType::bf16: launch<__nv_bfloat16>(mask, shape, seed, step, place, keep, stream); break;
  }
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(std::string("CUDA: drawing a mask failed: ") + cudaGetErrorString(status));
}

}  // namespace paceline::nn
