// The kernels of the optimizers. A tensor, or the piece of it that this rank holds, is cut into chunks; a thread block works on one chunk,
// and a launch covers any run of chunks.
//
// Invariant: chunks begin at multiples of kChunk from the start of their tensor or piece, so that its sums consist of the same parts in the
// same order in every call.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "paceline/optim/optimizer.h"
#include "paceline/optim/rules/element.h"

namespace paceline::optim::kernels {

inline constexpr int kThreads = 256;  // of every block
inline constexpr int kChunk = 4096;   // elements: four vectors of four for each thread

struct Chunk {
  std::int64_t offset;  // in the flat buffers
  std::int32_t count;
  std::int32_t tensor;  // index among all segments
  std::int32_t decay;   // Segment::decay
};

struct Tensor {
  std::int32_t first_chunk, chunks;
  std::int32_t decay;
  std::int32_t whole;  // Segment::tensor
};

/// Flat buffers on the device; states that the rule does not have are null.
struct Arrays {
  float* weights;
  float* gradients;
  float* first;
  float* second;
};

/// Two sums for each chunk: the squares of its parameters, and those of its gradients or directions.
struct ChunkSums {
  double* weights;
  double* others;
};

/// `width` neighbouring elements in registers; four of them are one aligned access of 16 bytes.
template <int width>
struct Values {
  float at[width] = {};

  __device__ void load(const float* from) {
    if constexpr (width == 4) {
      const float4 vector = *reinterpret_cast<const float4*>(from);
      at[0] = vector.x, at[1] = vector.y, at[2] = vector.z, at[3] = vector.w;
    } else {
      at[0] = *from;
    }
  }

  __device__ void store(float* to) const {
    if constexpr (width == 4) *reinterpret_cast<float4*>(to) = make_float4(at[0], at[1], at[2], at[3]);
    else *to = at[0];
  }
};

/// Calls body(i, width) for this thread's share of the elements from `begin`: width 4 in the aligned middle and 1 at the ends, as a type.
template <class Body>
__device__ void for_each_vector(std::int64_t begin, std::int64_t count, const Body& body) {
  const std::int64_t end = begin + count;
  const std::int64_t middle = min((begin + 3) / 4 * 4, end), rest = max(end / 4 * 4, middle);
  const int thread = threadIdx.x;
  if (begin + thread < middle) body(begin + thread, std::integral_constant<int, 1>());
  for (std::int64_t i = middle + 4 * thread; i < rest; i += 4 * kThreads) body(i, std::integral_constant<int, 4>());
  if (rest + thread < end) body(rest + thread, std::integral_constant<int, 1>());
}

/// The sum of the block's values, in the same order in every run; thread 0 gets it.
__device__ inline double block_sum(double value) {
  __shared__ double warps[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
  __syncthreads();  // an earlier call's sums have been read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int warp = 1; warp < kThreads / 32; ++warp) value += warps[warp];
  return value;
}

/// The sum of n values in global memory, on one block; thread 0 gets it.
__device__ inline double block_sum(const double* values, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += values[i];
  return block_sum(sum);
}

template <int width>
__device__ double squares(const Values<width>& values) {
  double sum = 0;
  for (float value : values.at) sum += static_cast<double>(value) * value;
  return sum;
}

/// The tensor's factors; `trust` is null if the rule has none, or it is not known yet.
__device__ inline TensorFactors factors(const Step& step, const Chunk& chunk, const float* trust) {
  return {chunk.decay ? step.decay : 0.0f, trust ? trust[chunk.tensor] : 1.0f};
}

/// The whole update, for rules that have apply().
template <class Rule, bool zero_gradients>
__global__ void __launch_bounds__(kThreads) apply(const Chunk* chunks, const Step* present, const float* trust, Arrays arrays) {
  const Chunk chunk = chunks[blockIdx.x];
  const Step step = *present;
  const TensorFactors tensor = factors(step, chunk, trust);
  for_each_vector(chunk.offset, chunk.count, [&](std::int64_t i, auto width) {
    Values<decltype(width)::value> weight, gradient, first, second;
    weight.load(arrays.weights + i);
    gradient.load(arrays.gradients + i);
    if constexpr (Rule::kStates > 0) first.load(arrays.first + i);
    if constexpr (Rule::kStates > 1) second.load(arrays.second + i);
    for (int k = 0; k < decltype(width)::value; ++k)
      Rule::apply(step, tensor, product(step.scale, gradient.at[k]), weight.at[k], first.at[k], second.at[k]);
    weight.store(arrays.weights + i);
    if constexpr (Rule::kStates > 0) first.store(arrays.first + i);
    if constexpr (Rule::kStates > 1) second.store(arrays.second + i);
    if constexpr (zero_gradients) decltype(weight)().store(arrays.gradients + i);
  });
}

/// First pass of LAMB: the moments, and the sums for the norms of the parameters and of the directions.
template <class Rule, bool zero_gradients>
__global__ void __launch_bounds__(kThreads) accumulate(const Chunk* chunks, const Step* present, Arrays arrays, ChunkSums sums) {
  const Chunk chunk = chunks[blockIdx.x];
  const Step step = *present;
  const TensorFactors tensor = factors(step, chunk, nullptr);
  double weights = 0, directions = 0;
  for_each_vector(chunk.offset, chunk.count, [&](std::int64_t i, auto width) {
    Values<decltype(width)::value> weight, gradient, first, second, direction;
    weight.load(arrays.weights + i);
    gradient.load(arrays.gradients + i);
    first.load(arrays.first + i);
    second.load(arrays.second + i);
    for (int k = 0; k < decltype(width)::value; ++k) {
      Rule::accumulate(step, product(step.scale, gradient.at[k]), first.at[k], second.at[k]);
      direction.at[k] = Rule::direction(step, tensor, weight.at[k], first.at[k], second.at[k]);
    }
    first.store(arrays.first + i);
    second.store(arrays.second + i);
    if constexpr (zero_gradients) decltype(weight)().store(arrays.gradients + i);
    weights += squares(weight);
    directions += squares(direction);
  });
  weights = block_sum(weights);
  directions = block_sum(directions);
  if (threadIdx.x == 0) sums.weights[blockIdx.x] = weights, sums.others[blockIdx.x] = directions;
}

/// Second pass of LAMB: the parameters.
template <class Rule>
__global__ void __launch_bounds__(kThreads) move(const Chunk* chunks, const Step* present, const float* trust, Arrays arrays) {
  const Chunk chunk = chunks[blockIdx.x];
  const Step step = *present;
  const TensorFactors tensor = factors(step, chunk, trust);
  for_each_vector(chunk.offset, chunk.count, [&](std::int64_t i, auto width) {
    Values<decltype(width)::value> weight, first, second;
    weight.load(arrays.weights + i);
    first.load(arrays.first + i);
    second.load(arrays.second + i);
    for (int k = 0; k < decltype(width)::value; ++k) Rule::move(step, tensor, weight.at[k], first.at[k], second.at[k]);
    weight.store(arrays.weights + i);
  });
}

/// sums[chunk] ← squares of the chunk's values.
static __global__ void __launch_bounds__(kThreads) sum_squares(const Chunk* chunks, const float* values, double* sums) {
  const Chunk chunk = chunks[blockIdx.x];
  double sum = 0;
  for_each_vector(chunk.offset, chunk.count, [&](std::int64_t i, auto width) {
    Values<decltype(width)::value> value;
    value.load(values + i);
    sum += squares(value);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// trust[tensor] ← the rule's factor; one block for each tensor from the first of the call. `sums` are of all chunks of the arena.
template <class Rule>
__global__ void __launch_bounds__(kThreads) adapt(const Tensor* tensors, const Step* present, ChunkSums sums, float* trust) {
  const Tensor tensor = tensors[blockIdx.x];
  const double weights = block_sum(sums.weights + tensor.first_chunk, tensor.chunks);
  const double others = block_sum(sums.others + tensor.first_chunk, tensor.chunks);
  if (threadIdx.x == 0) trust[blockIdx.x] = tensor.decay ? Rule::trust(*present, weights, others) : 1.0f;
}

/// squares[whole] += the sums of each piece from the first of the call on; one block for each. `sums` are of all chunks.
static __global__ void __launch_bounds__(kThreads) add_squares(const Tensor* pieces, ChunkSums sums, Squares* squares) {
  const Tensor piece = pieces[blockIdx.x];
  const double weights = block_sum(sums.weights + piece.first_chunk, piece.chunks);
  const double others = block_sum(sums.others + piece.first_chunk, piece.chunks);
  if (threadIdx.x > 0) return;
  squares[piece.whole].parameters += weights;
  squares[piece.whole].others += others;
}

/// trust[piece] ← the rule's factor, from the squares of the whole tensor; one block of one thread for each piece from the first of the
/// call.
template <class Rule>
__global__ void adapt_piece(const Tensor* pieces, const Step* present, const Squares* squares, float* trust) {
  const Tensor piece = pieces[blockIdx.x];
  const Squares whole = squares[piece.whole];
  trust[blockIdx.x] = piece.decay ? Rule::trust(*present, whole.parameters, whole.others) : 1.0f;
}

/// *result ← the sum of n sums, in one block.
static __global__ void __launch_bounds__(kThreads) total(const double* sums, std::int64_t n, double* result) {
  const double sum = block_sum(sums, n);
  if (threadIdx.x == 0) *result = sum;
}

static __global__ void set_step(Step step, Step* present) { *present = step; }

/// *clipped ← *given, with the scale that keeps the gradient's norm at most clip_norm.
static __global__ void clip(const Step* given, const double* squared_norm, double clip_norm, Step* clipped) {
  *clipped = *given;
  clipped->scale = clipped_scale(given->scale, *squared_norm, clip_norm);
}

static __global__ void __launch_bounds__(kThreads) cast(const float* input, __nv_bfloat16* output, std::int64_t n) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::int64_t i = 2 * thread; i + 1 < n; i += 2 * stride)
    *reinterpret_cast<__nv_bfloat162*>(output + i) = __float22bfloat162_rn(*reinterpret_cast<const float2*>(input + i));
  if (n % 2 == 1 && thread == 0) output[n - 1] = __float2bfloat16_rn(input[n - 1]);
}

}  // namespace paceline::optim::kernels
