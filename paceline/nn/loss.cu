// Softmax with cross entropy, one block per row. The row is read once and kept in shared memory if it fits, and only the gradient is
// written: with a vocabulary of 50,000 tokens the logits are most of a step's memory.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <string>

#include "paceline/base/error.h"
#include "paceline/nn/loss_cuda.h"
#include "paceline/nn/norm_rows.cuh"

namespace paceline::nn {
namespace {

constexpr int kLossThreads = 512, kLossWarps = kLossThreads / 32;
constexpr std::size_t kMostKept = 112 * 1024;  // bytes of a row in shared memory: two blocks on a multiprocessor of an H100 or H200
constexpr float kLog2E = 1.4426950408889634f;

/// Of some classes: the largest logit and the first class that has it, Σ exp(x − largest), and Σ x.
struct Softmax {
  float largest = -FLT_MAX, exponentials = 0, sum = 0;
  std::int64_t best = INT64_MAX;
};

__device__ Softmax joined(const Softmax& a, const Softmax& b) {
  Softmax out;
  out.largest = fmaxf(a.largest, b.largest);
  out.exponentials =
      a.exponentials * exp2f((a.largest - out.largest) * kLog2E) + b.exponentials * exp2f((b.largest - out.largest) * kLog2E);
  out.sum = a.sum + b.sum;
  out.best = a.largest == b.largest ? min(a.best, b.best) : a.largest > b.largest ? a.best : b.best;
  return out;
}

__device__ Softmax joined_in_warp(Softmax own) {
  for (int distance = 16; distance > 0; distance /= 2) {
    Softmax other;
    other.largest = __shfl_xor_sync(0xffffffffu, own.largest, distance);
    other.exponentials = __shfl_xor_sync(0xffffffffu, own.exponentials, distance);
    other.sum = __shfl_xor_sync(0xffffffffu, own.sum, distance);
    other.best = __shfl_xor_sync(0xffffffffu, own.best, distance);
    own = joined(own, other);
  }
  return own;
}

/// Every thread gets the result.
__device__ Softmax joined_in_block(const Softmax& own) {
  __shared__ Softmax of_warps[kLossWarps];
  const Softmax warp = joined_in_warp(own);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = warp;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return joined_in_warp(lane < kLossWarps ? of_warps[lane] : Softmax{});
}

template <int kWidth>
struct Group {
  float v[kWidth];
};

/// kWidth neighbouring values: eight, where rows begin at multiples of 16 bytes, or one.
template <int kWidth, class T>
__device__ Group<kWidth> load_group(const T* from) {
  Group<kWidth> out;
  if constexpr (kWidth == kVector) {
    Packed<T> packed;
#pragma unroll
    for (unsigned w = 0; w < sizeof(packed.words) / sizeof(uint4); ++w) packed.words[w] = reinterpret_cast<const uint4*>(from)[w];
    const Eight eight = unpack(packed);
#pragma unroll
    for (int i = 0; i < kVector; ++i) out.v[i] = eight.v[i];
  } else {
    out.v[0] = static_cast<float>(*from);
  }
  return out;
}

template <int kWidth, class T>
__device__ void store_group(T* to, const Group<kWidth>& values) {
  if constexpr (kWidth == kVector) {
    Eight eight;
#pragma unroll
    for (int i = 0; i < kVector; ++i) eight.v[i] = values.v[i];
    store(to, eight);
  } else {
    *to = static_cast<T>(values.v[0]);
  }
}

/// kKept: the row stays in shared memory between the two loops. A thread reads there what it wrote itself.
template <class T, int kWidth, bool kKept>
__global__ void __launch_bounds__(kLossThreads)
    softmax_loss_rows(const T* logits, const std::int64_t* targets, std::int64_t rows, std::int64_t classes, double smoothing, float scale,
                      double* sums, T* gradient) {
  const std::int64_t row = blockIdx.x, first = kWidth * static_cast<std::int64_t>(threadIdx.x), step = kWidth * kLossThreads;
  const T* own = logits + row * classes;
  extern __shared__ uint4 kept_words[];
  T* kept = reinterpret_cast<T*>(kept_words);
  Softmax mine;
#pragma unroll 4
  for (std::int64_t c = first; c < classes; c += step) {
    const Group<kWidth> x = load_group<kWidth>(own + c);
    if constexpr (kKept) store_group<kWidth>(kept + c, x);
    float largest = x.v[0];
    int place = 0;
#pragma unroll
    for (int i = 1; i < kWidth; ++i)
      if (x.v[i] > largest) largest = x.v[i], place = i;
    if (largest > mine.largest) {
      mine.exponentials *= exp2f((mine.largest - largest) * kLog2E);
      mine.largest = largest, mine.best = c + place;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) mine.exponentials += exp2f((x.v[i] - mine.largest) * kLog2E), mine.sum += x.v[i];
  }
  const Softmax all = joined_in_block(mine);
  const std::int64_t target = targets[row];
  const bool known = target >= 0 && target < classes;
  if (threadIdx.x == 0) {
    const double log_sum = static_cast<double>(all.largest) + log(static_cast<double>(all.exponentials));
    const double logit = known ? static_cast<double>(static_cast<float>(own[target])) : static_cast<double>(NAN);
    sums[row] =
        log_sum - (1 - smoothing) * logit - (smoothing > 0 ? smoothing / static_cast<double>(classes) * static_cast<double>(all.sum) : 0.0);
    sums[rows + row] = all.best == target ? 1.0 : 0.0;
  }
  if (!gradient) return;
  const float factor = scale / all.exponentials;
  const float everywhere = scale * static_cast<float>(smoothing / static_cast<double>(classes));
  const float at_target = scale * static_cast<float>(1 - smoothing);
  T* out = gradient + row * classes;
#pragma unroll 4
  for (std::int64_t c = first; c < classes; c += step) {
    Group<kWidth> x = load_group<kWidth>(kKept ? kept + c : own + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      x.v[i] = factor * exp2f((x.v[i] - all.largest) * kLog2E) - everywhere - (c + i == target ? at_target : 0.0f);
    store_group<kWidth>(out + c, x);
  }
}

/// Bytes of a row that a block may keep: what this GPU lets a kernel ask for, less what the sums of a block take.
std::size_t most_kept() {
  constexpr std::size_t kSums = 2048;
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return std::min(kMostKept, static_cast<std::size_t>(most) - std::min(kSums, static_cast<std::size_t>(most)));
}

template <class T>
void launch(const LossRows& shape, const void* logits, const std::int64_t* targets, double smoothing, double scale, double* sums,
            void* gradient, void* stream) {
  const bool vectors = shape.classes % kVector == 0;  // a row then begins at a multiple of 16 bytes, as tensors of LibTorch do
  const std::size_t bytes = static_cast<std::size_t>(shape.classes) * sizeof(T);
  const bool kept = vectors && gradient && bytes <= most_kept();
  const auto kernel = kept      ? softmax_loss_rows<T, kVector, true>
                      : vectors ? softmax_loss_rows<T, kVector, false>
                                : softmax_loss_rows<T, 1, false>;
  if (kept) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  kernel<<<static_cast<unsigned>(shape.rows), kLossThreads, kept ? bytes : 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const T*>(logits), targets, shape.rows, shape.classes, smoothing, static_cast<float>(scale), sums,
      static_cast<T*>(gradient));
}

}  // namespace

void launch_softmax_loss(const LossRows& shape, const void* logits, const std::int64_t* targets, double smoothing, double scale,
                         double* sums, void* gradient, void* stream) {
  if (shape.rows == 0) return;
  if (shape.bf16) launch<__nv_bfloat16>(shape, logits, targets, smoothing, scale, sums, gradient, stream);
  else launch<float>(shape, logits, targets, smoothing, scale, sums, gradient, stream);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(std::string("CUDA: the kernel of the loss failed: ") + cudaGetErrorString(status));
}

}  // namespace paceline::nn
