#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/nn/norm_rows.cuh"
#include "paceline/nn/rows_cuda.h"

namespace paceline::nn {
namespace {

constexpr int kLanes = 32;
constexpr int kStrip = kLanes * kVector;  // columns of a block that sums over rows
constexpr int kRowsAtOnce = 8;            // of such a block
constexpr int kInFlight = 4;              // rows that a thread loads before it uses the first
constexpr int kMultiprocessors = 132;     // of an H100 or H200

template <class T>
__device__ Packed<T> packed_at(const T* from) {
  Packed<T> out;
#pragma unroll
  for (unsigned w = 0; w < sizeof(out.words) / sizeof(uint4); ++w) out.words[w] = reinterpret_cast<const uint4*>(from)[w];
  return out;
}

template <class T>
__device__ Eight eight_at(const T* from) {
  return unpack(packed_at(from));
}

/// GELU'(x) in the tanh form: y = x σ(2u), u = √(2/π) (x + 0.044715 x³).
template <class T>
__device__ float gelu_slope(float x) {
  constexpr float kRoot = 0.7978845608028654f, kCubic = 0.044715f;
  const float power = -2.0f * kRoot * (x + kCubic * x * x * x);
  // The fast exponential is accurate to 20 bits, which suffices for results of 8 bits.
  const float gate = sizeof(T) == 2 ? __fdividef(1.0f, 1.0f + __expf(power)) : 1.0f / (1.0f + expf(power));
  return gate + x * gate * (1.0f - gate) * (2.0f * kRoot) * (1.0f + 3.0f * kCubic * x * x);
}

/// A block has kStrip columns and every gridDim.x-th group of kRowsAtOnce rows; its sums go to row blockIdx.x of `partial`.
template <class T, bool kGelu>
__global__ void __launch_bounds__(kLanes* kRowsAtOnce)
    column_pass(const T* values, const T* x, T* out, std::int64_t rows, int columns, float* partial) {
  __shared__ float of_rows[kRowsAtOnce][kStrip];
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.y) * kStrip + lane * kVector;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kRowsAtOnce;
  Eight sum{};
  if (column < columns) {
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowsAtOnce + line; row < rows; row += kInFlight * step) {
      Packed<T> asked[kInFlight], inputs[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (row + i * step >= rows) continue;
        asked[i] = packed_at(values + (row + i * step) * columns + column);
        if constexpr (kGelu) inputs[i] = packed_at(x + (row + i * step) * columns + column);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (row + i * step >= rows) continue;
        Eight value = unpack(asked[i]);
        if constexpr (kGelu) {
          const Eight input = unpack(inputs[i]);
#pragma unroll
          for (int k = 0; k < kVector; ++k) value.v[k] *= gelu_slope<T>(input.v[k]);
          store(out + (row + i * step) * columns + column, value);
        }
#pragma unroll
        for (int k = 0; k < kVector; ++k) sum.v[k] += value.v[k];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k) of_rows[line][lane * kVector + k] = sum.v[k];
  __syncthreads();
  const int own = line * kLanes + lane, place = static_cast<int>(blockIdx.y) * kStrip + own;
  if (place >= columns) return;
  float total = 0;
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) total += of_rows[r][own];
  partial[static_cast<std::int64_t>(blockIdx.x) * columns + place] = total;
}

/// Adds the rows of `partial`. Columns starting at `split` belong to `second`.
__global__ void column_finish(const float* partial, int rows, int columns, int split, float* place, float* second, bool add) {
  __shared__ float of_lines[kLanes][kLanes + 1];
  const int column = static_cast<int>(blockIdx.x) * kLanes + static_cast<int>(threadIdx.x);
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.y); row < rows; row += kLanes)
      sum += partial[static_cast<std::int64_t>(row) * columns + column];
  }
  of_lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  sum = 0;
#pragma unroll
  for (int line = 0; line < kLanes; ++line) sum += of_lines[line][threadIdx.x];
  float* to = column < split ? place + column : second ? second + (column - split) : nullptr;
  if (to) *to = add ? *to + sum : sum;
}

/// Two sums over the threads of a block; every thread gets them. `turn` alternates between calls, so that one barrier is enough.
__device__ float2 block_sums(float a, float b, int turn) {
  __shared__ float2 of_warps[2][kMostFeatures / kVector / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    a += __shfl_xor_sync(0xffffffffu, a, distance);
    b += __shfl_xor_sync(0xffffffffu, b, distance);
  }
  if (threadIdx.x % 32 == 0) of_warps[turn][threadIdx.x / 32] = make_float2(a, b);
  __syncthreads();
  float2 sum = make_float2(0, 0);
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum.x += of_warps[turn][warp].x, sum.y += of_warps[turn][warp].y;
  return sum;
}

/// A block handles every gridDim.x-th row, a thread eight columns. Sums are of differences from the row's first value, so that a large
/// mean does not cost the variance digits.
template <class T>
__global__ void __launch_bounds__(kMostFeatures / kVector) layer_norm(LayerNormForward pass, std::int64_t rows, int columns) {
  const int column = static_cast<int>(threadIdx.x) * kVector;
  const bool has = column < columns;
  const auto *x = static_cast<const T*>(pass.x), *residual = static_cast<const T*>(pass.residual);
  Eight scale{}, shift{};
  if (has) scale = eight_at(static_cast<const T*>(pass.scale) + column);
  if (has && pass.shift) shift = eight_at(static_cast<const T*>(pass.shift) + column);
  const float share = 1.0f / static_cast<float>(columns);
  Packed<T> next_x{}, next_residual{};
  float next_first = 0;
  const auto ask = [&](std::int64_t row) {
    if (row >= rows) return;
    const std::int64_t begin = row * columns;
    next_first = static_cast<float>(x[begin]) + (residual ? static_cast<float>(residual[begin]) : 0.0f);
    if (!has) return;
    next_x = packed_at(x + begin + column);
    if (residual) next_residual = packed_at(residual + begin + column);
  };
  ask(blockIdx.x);
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    const std::int64_t at = row * columns + column;
    Eight value = unpack(next_x);
    const Eight other = unpack(next_residual);
    const float first = next_first;
    ask(row + gridDim.x);  // in flight while the sums are computed
    if (residual) {
#pragma unroll
      for (int k = 0; k < kVector; ++k) value.v[k] += other.v[k];
      if (has) store(static_cast<T*>(pass.sum) + at, value);
#pragma unroll
      for (int k = 0; k < kVector; ++k) value.v[k] = static_cast<float>(static_cast<T>(value.v[k]));  // what the backward pass will see
    }
    float sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float distance = has ? value.v[k] - first : 0.0f;
      sum += distance, squares += distance * distance;
    }
    const float2 sums = block_sums(sum, squares, turn);
    const float centre = sums.x * share, mean = first + centre;
    const float inverse = rsqrtf(fmaxf(sums.y * share - centre * centre, 0.0f) + pass.epsilon);
    if (threadIdx.x == 0) pass.mean[row] = mean, pass.inverse[row] = inverse;
    if (!has) continue;
#pragma unroll
    for (int k = 0; k < kVector; ++k) value.v[k] = (value.v[k] - mean) * inverse * scale.v[k] + shift.v[k];
    store(static_cast<T*>(pass.y) + at, value);
  }
}

/// With g the gradient times the scale and x̂ the normalised x: ∂x = (g − mean g − x̂ · mean(g x̂)) · inverse deviation.
template <class T, bool kOnto>
__global__ void __launch_bounds__(kMostFeatures / kVector)
    layer_norm_back(LayerNormBackward pass, std::int64_t rows, int columns, float* partial) {
  const int column = static_cast<int>(threadIdx.x) * kVector;
  const bool has = column < columns;
  const auto *gradients = static_cast<const T*>(pass.gradient), *inputs = static_cast<const T*>(pass.x);
  const auto* others = static_cast<const T*>(pass.onto);
  Eight scale{}, by_scale{}, by_shift{};
  if (has) scale = eight_at(static_cast<const T*>(pass.scale) + column);
  const float share = 1.0f / static_cast<float>(columns);
  Packed<T> next_gradient{}, next_x{}, next_onto{};
  float next_mean = 0, next_inverse = 0;
  const auto ask = [&](std::int64_t row) {
    if (row >= rows) return;
    next_mean = pass.mean[row], next_inverse = pass.inverse[row];
    if (!has) return;
    const std::int64_t at = row * columns + column;
    next_gradient = packed_at(gradients + at), next_x = packed_at(inputs + at);
    if constexpr (kOnto) next_onto = packed_at(others + at);
  };
  ask(blockIdx.x);
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    Eight gradient = unpack(next_gradient), x = unpack(next_x), onto{};
    if constexpr (kOnto) onto = unpack(next_onto);
    const float mean = next_mean, inverse = next_inverse;
    ask(row + gridDim.x);  // in flight while the sums are computed
    float sum = 0, products = 0;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      x.v[k] = has ? (x.v[k] - mean) * inverse : 0.0f;
      by_shift.v[k] += gradient.v[k];
      by_scale.v[k] += gradient.v[k] * x.v[k];
      gradient.v[k] *= scale.v[k];
      sum += gradient.v[k];
      products += gradient.v[k] * x.v[k];
    }
    const float2 sums = block_sums(sum, products, turn);
    if (!has) continue;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      gradient.v[k] = (gradient.v[k] - sums.x * share - x.v[k] * sums.y * share) * inverse;
      if constexpr (kOnto) gradient.v[k] += onto.v[k];
    }
    store(static_cast<T*>(pass.out) + row * columns + column, gradient);
  }
  if (!has) return;
  float* own = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * columns;
  store(own + column, by_scale);
  store(own + columns + column, by_shift);
}

void check_launch(const char* what) {
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(status));
}

void finish(const ColumnSums& sums, int partials, int columns, int split, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((columns + kLanes - 1) / kLanes);
  column_finish<<<blocks, dim3(kLanes, kLanes), 0, stream>>>(sums.scratch, partials, columns, split, sums.place, sums.second, sums.add);
}

template <class T, bool kGelu>
void run_columns(const RowsShape& shape, const void* values, const void* x, void* out, const ColumnSums& sums, void* stream) {
  const int strips = (shape.columns + kStrip - 1) / kStrip;
  const std::int64_t groups = (shape.rows + kRowsAtOnce * kInFlight - 1) / (kRowsAtOnce * kInFlight);
  const auto blocks =
      static_cast<int>(std::clamp<std::int64_t>(groups, 1, std::max(1, std::min(kMostPartials, 8 * kMultiprocessors / strips))));
  const auto where = static_cast<cudaStream_t>(stream);
  column_pass<T, kGelu><<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(strips)), dim3(kLanes, kRowsAtOnce), 0, where>>>(
      static_cast<const T*>(values), static_cast<const T*>(x), static_cast<T*>(out), shape.rows, shape.columns, sums.scratch);
  finish(sums, blocks, shape.columns, shape.columns, where);
  check_launch("a sum over rows");
}

unsigned threads_for(const RowsShape& shape) { return static_cast<unsigned>((shape.columns / kVector + 31) / 32 * 32); }

unsigned blocks_for(const RowsShape& shape) {
  const auto by_multiprocessor = std::max<std::int64_t>(1, 1024 / threads_for(shape));
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(shape.rows, 1, std::min<std::int64_t>(kMostPartials, kMultiprocessors * by_multiprocessor)));
}

}  // namespace

void launch_column_sums(const RowsShape& shape, const void* values, const ColumnSums& sums, void* stream) {
  if (shape.bf16) run_columns<__nv_bfloat16, false>(shape, values, nullptr, nullptr, sums, stream);
  else run_columns<float, false>(shape, values, nullptr, nullptr, sums, stream);
}

void launch_gelu_back(const RowsShape& shape, const void* gradient, const void* x, void* out, const ColumnSums& sums, void* stream) {
  if (shape.bf16) run_columns<__nv_bfloat16, true>(shape, gradient, x, out, sums, stream);
  else run_columns<float, true>(shape, gradient, x, out, sums, stream);
}

void launch_layer_norm(const RowsShape& shape, const LayerNormForward& pass, void* stream) {
  const auto kernel = shape.bf16 ? layer_norm<__nv_bfloat16> : layer_norm<float>;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(shape.rows, 1, std::max(1, 2048 / static_cast<int>(threads_for(shape))) * kMultiprocessors));
  kernel<<<blocks, threads_for(shape), 0, static_cast<cudaStream_t>(stream)>>>(pass, shape.rows, shape.columns);
  check_launch("a layer norm");
}

void launch_layer_norm_back(const RowsShape& shape, const LayerNormBackward& pass, const ColumnSums& sums, void* stream) {
  const auto kernel = shape.bf16 ? (pass.onto ? layer_norm_back<__nv_bfloat16, true> : layer_norm_back<__nv_bfloat16, false>)
                                 : (pass.onto ? layer_norm_back<float, true> : layer_norm_back<float, false>);
  const unsigned blocks = blocks_for(shape);
  const auto where = static_cast<cudaStream_t>(stream);
  kernel<<<blocks, threads_for(shape), 0, where>>>(pass, shape.rows, shape.columns, sums.scratch);
  finish(sums, static_cast<int>(blocks), 2 * shape.columns, shape.columns, where);
  check_launch("the gradient of a layer norm");
}

}  // namespace paceline::nn
