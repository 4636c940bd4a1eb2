// Every kernel lays its threads out alike: a thread owns eight neighbouring channels (one 16-byte load of bf16) and walks down the rows, so
// that a channel's constants stay in registers and a warp reads whole lines.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/nn/norm_cuda.h"

namespace paceline::nn {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 8;

struct Eight {
  float v[kVector];
};

__device__ Eight load(const __nv_bfloat16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    out.v[2 * i] = pair.x, out.v[2 * i + 1] = pair.y;
  }
  return out;
}

__device__ Eight load(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ void store(__nv_bfloat16* to, const Eight& values) {
  uint4 raw;
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(values.v[2 * i], values.v[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = raw;
}

__device__ void store(float* to, const Eight& v) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v.v[4], v.v[5], v.v[6], v.v[7]);
}

/// Where a thread stands: its first channel, its first row, and how far to the next.
struct Walk {
  int channel;
  std::int64_t row, step;

  __device__ explicit Walk(int channels) {
    const int groups = channels / kVector, rows_a_block = kThreads / groups;
    channel = static_cast<int>(threadIdx.x) % groups * kVector;
    const int row_in_block = static_cast<int>(threadIdx.x) / groups;
    row = static_cast<std::int64_t>(blockIdx.x) * rows_a_block + row_in_block;
    step = static_cast<std::int64_t>(gridDim.x) * rows_a_block;
    if (row_in_block >= rows_a_block) row = INT64_MAX / 2;  // groups that do not divide the block leave some threads over
  }
};

/// Sums two values a channel over the threads of the block, then, in the block that comes last, over all blocks; calls
/// finish(channel, first, second) there for every channel.
template <class Finish>
__device__ void reduce_over_all(const Eight& first, const Eight& second, int channels, float* partial, unsigned* counter,
                                const Finish& finish) {
  __shared__ float shared[2][kThreads * kVector];
  __shared__ bool last;
  const int groups = channels / kVector, rows_a_block = kThreads / groups;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    shared[0][threadIdx.x * kVector + i] = first.v[i];
    shared[1][threadIdx.x * kVector + i] = second.v[i];
  }
  __syncthreads();
  float* mine = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * channels;
  for (int c = threadIdx.x; c < channels; c += kThreads) {
    float a = 0, b = 0;
    for (int r = 0; r < rows_a_block; ++r) {  // thread (r, group) holds channel c at this place
      const int at = (r * groups + c / kVector) * kVector + c % kVector;
      a += shared[0][at], b += shared[1][at];
    }
    mine[c] = a, mine[channels + c] = b;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  // The last block to come adds the partial sums in the order of the blocks: parts of them by several threads, then the parts.
  const int parts = max(1, kThreads / channels);
  double* sums = reinterpret_cast<double*>(shared);  // [2][parts × channels], parts × channels ≤ 2048 where parts > 1
  for (int t = threadIdx.x; t < parts * channels; t += kThreads) {
    const int c = t % channels, part = t / channels;
    const int begin = static_cast<int>(gridDim.x) * part / parts, end = static_cast<int>(gridDim.x) * (part + 1) / parts;
    double a = 0, b = 0;
#pragma unroll 8
    for (int block = begin; block < end; ++block) {
      const float* row = partial + static_cast<std::int64_t>(block) * 2 * channels;
      a += __ldcg(row + c), b += __ldcg(row + channels + c);
    }
    if (parts == 1) finish(c, a, b);
    else sums[t] = a, sums[parts * channels + t] = b;
  }
  if (threadIdx.x == 0) *counter = 0;  // ready for the next launch
  if (parts == 1) return;
  __syncthreads();
  for (int c = threadIdx.x; c < channels; c += kThreads) {
    double a = 0, b = 0;
    for (int part = 0; part < parts; ++part) a += sums[part * channels + c], b += sums[(parts + part) * channels + c];
    finish(c, a, b);
  }
}

template <class T>
__global__ void statistics(const T* x, std::int64_t rows, int channels, float epsilon, float momentum, float* mean,
                           float* inverse_deviation, float* running_mean, float* running_variance, float* partial, unsigned* counter) {
  const Walk walk(channels);
  Eight sum{}, squares{};
#pragma unroll 4
  for (std::int64_t row = walk.row; row < rows; row += walk.step) {
    const Eight value = load(x + row * channels + walk.channel);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.v[i] += value.v[i], squares.v[i] += value.v[i] * value.v[i];
  }
  reduce_over_all(sum, squares, channels, partial, counter, [&](int c, double total, double total_squares) {
    const double n = static_cast<double>(rows), average = total / n;
    const double variance = fmax(total_squares / n - average * average, 0.0);
    mean[c] = static_cast<float>(average);
    inverse_deviation[c] = static_cast<float>(rsqrt(variance + epsilon));
    running_mean[c] += momentum * (static_cast<float>(average) - running_mean[c]);
    running_variance[c] += momentum * (static_cast<float>(variance * n / fmax(n - 1, 1.0)) - running_variance[c]);
  });
}

template <class T, bool kRelu, bool kResidual>
__global__ void apply(const T* x, const T* residual, std::int64_t rows, int channels, const float* mean, const float* inverse_deviation,
                      const float* weight, const float* bias, T* y) {
  const Walk walk(channels);
  if (walk.row >= rows) return;
  Eight scale = load(weight + walk.channel), shift = load(bias + walk.channel);
  const Eight centre = load(mean + walk.channel), inverse = load(inverse_deviation + walk.channel);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    scale.v[i] *= inverse.v[i];
    shift.v[i] -= centre.v[i] * scale.v[i];
  }
#pragma unroll 2
  for (std::int64_t row = walk.row; row < rows; row += walk.step) {
    const std::int64_t at = row * channels + walk.channel;
    Eight value = load(x + at), other{};
    if constexpr (kResidual) other = load(residual + at);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      value.v[i] = value.v[i] * scale.v[i] + shift.v[i] + other.v[i];
      if constexpr (kRelu) value.v[i] = fmaxf(value.v[i], 0.0f);
    }
    store(y + at, value);
  }
}

/// The constants of the backward pass for a thread's eight channels.
struct Constants {
  Eight centre, inverse, weight, bias;
  __device__ Constants(const NormBackward& pass, int channel)
      : centre(load(pass.mean + channel)),
        inverse(load(pass.inverse_deviation + channel)),
        weight(load(pass.weight + channel)),
        bias(load(pass.bias + channel)) {}
  __device__ float normalised(float x, int i) const { return (x - centre.v[i]) * inverse.v[i]; }
};

template <class T, bool kRelu, bool kResidual>
__global__ void backward_reduce(NormBackward pass, std::int64_t rows, int channels, bool add, float* weight_gradient, float* bias_gradient,
                                float* sums, T* masked, float* partial, unsigned* counter) {
  const Walk walk(channels);
  const Constants constants(pass, walk.channel);
  Eight by_bias{}, by_weight{};
#pragma unroll 4
  for (std::int64_t row = walk.row; row < rows; row += walk.step) {
    const std::int64_t at = row * channels + walk.channel;
    Eight gradient = load(static_cast<const T*>(pass.gradient) + at), output{};
    const Eight x = load(static_cast<const T*>(pass.x) + at);
    if constexpr (kRelu && kResidual) output = load(static_cast<const T*>(pass.y) + at);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float normal = constants.normalised(x.v[i], i);
      if constexpr (kRelu && !kResidual) output.v[i] = constants.weight.v[i] * normal + constants.bias.v[i];
      if constexpr (kRelu) gradient.v[i] = output.v[i] > 0 ? gradient.v[i] : 0.0f;
      by_bias.v[i] += gradient.v[i];
      by_weight.v[i] += gradient.v[i] * normal;
    }
    if constexpr (kRelu && kResidual) store(masked + at, gradient);
  }
  reduce_over_all(by_bias, by_weight, channels, partial, counter, [&](int c, double bias_sum, double weight_sum) {
    sums[c] = static_cast<float>(bias_sum), sums[channels + c] = static_cast<float>(weight_sum);
    bias_gradient[c] = (add ? bias_gradient[c] : 0.0f) + static_cast<float>(bias_sum);
    weight_gradient[c] = (add ? weight_gradient[c] : 0.0f) + static_cast<float>(weight_sum);
  });
}

/// `kMask`: the gradient still has to go through the relu, whose state x tells.
template <class T, bool kMask>
__global__ void backward_apply(NormBackward pass, const T* gradient_in, std::int64_t rows, int channels, const float* sums, T* x_gradient) {
  const Walk walk(channels);
  if (walk.row >= rows) return;
  const Constants constants(pass, walk.channel);
  Eight bias_mean = load(sums + walk.channel), weight_mean = load(sums + channels + walk.channel);
  const float share = 1.0f / static_cast<float>(rows);
#pragma unroll
  for (int i = 0; i < kVector; ++i) bias_mean.v[i] *= share, weight_mean.v[i] *= share;
#pragma unroll 2
  for (std::int64_t row = walk.row; row < rows; row += walk.step) {
    const std::int64_t at = row * channels + walk.channel;
    Eight gradient = load(gradient_in + at);
    const Eight x = load(static_cast<const T*>(pass.x) + at);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float normal = constants.normalised(x.v[i], i);
      if constexpr (kMask) gradient.v[i] = constants.weight.v[i] * normal + constants.bias.v[i] > 0 ? gradient.v[i] : 0.0f;
      gradient.v[i] = constants.weight.v[i] * constants.inverse.v[i] * (gradient.v[i] - bias_mean.v[i] - normal * weight_mean.v[i]);
    }
    store(x_gradient + at, gradient);
  }
}

int blocks_for(const NormShape& shape, int rows_a_thread, int most) {
  const int rows_a_block = kThreads / (shape.channels / kVector);
  const std::int64_t wanted = (shape.rows + rows_a_block * rows_a_thread - 1) / (rows_a_block * rows_a_thread);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, most));
}

constexpr int kMostBlocksElementwise = 132 * 8;

void check_launch() {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw Error(std::string("a batch-norm kernel failed: ") + cudaGetErrorString(status));
}

/// Calls run with a null pointer of the element type: its way of passing a type.
template <class Run>
void with_type(const NormShape& shape, const Run& run) {
  if (shape.bf16) run(static_cast<__nv_bfloat16*>(nullptr));
  else run(static_cast<float*>(nullptr));
  check_launch();
}

}  // namespace

void launch_norm_statistics(const NormShape& shape, const void* x, float epsilon, float momentum, float* mean, float* inverse_deviation,
                            float* running_mean, float* running_variance, const NormScratch& scratch, void* stream) {
  with_type(shape, [&]<class T>(T*) {
    statistics<T><<<blocks_for(shape, 16, kMostNormBlocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(x), shape.rows, shape.channels, epsilon, momentum, mean, inverse_deviation, running_mean, running_variance,
        scratch.partial, scratch.counter);
  });
}

void launch_norm_apply(const NormShape& shape, const void* x, const void* residual, const float* mean, const float* inverse_deviation,
                       const float* weight, const float* bias, bool relu, void* y, void* stream) {
  with_type(shape, [&]<class T>(T*) {
    const auto kernel =
        relu ? (residual ? apply<T, true, true> : apply<T, true, false>) : (residual ? apply<T, false, true> : apply<T, false, false>);
    kernel<<<blocks_for(shape, 2, kMostBlocksElementwise), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(x), static_cast<const T*>(residual), shape.rows, shape.channels, mean, inverse_deviation, weight, bias,
        static_cast<T*>(y));
  });
}

void launch_norm_backward_reduce(const NormShape& shape, const NormBackward& pass, bool add, float* weight_gradient, float* bias_gradient,
                                 float* sums, void* masked, const NormScratch& scratch, void* stream) {
  with_type(shape, [&]<class T>(T*) {
    const auto kernel = !pass.relu ? backward_reduce<T, false, false>
                        : masked   ? backward_reduce<T, true, true>
                                   : backward_reduce<T, true, false>;
    kernel<<<blocks_for(shape, 16, kMostNormBlocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        pass, shape.rows, shape.channels, add, weight_gradient, bias_gradient, sums, static_cast<T*>(masked), scratch.partial,
        scratch.counter);
  });
}

void launch_norm_backward_apply(const NormShape& shape, const NormBackward& pass, const float* sums, const void* masked, void* x_gradient,
                                void* stream) {
  with_type(shape, [&]<class T>(T*) {
    const auto kernel = pass.relu && !masked ? backward_apply<T, true> : backward_apply<T, false>;
    kernel<<<blocks_for(shape, 2, kMostBlocksElementwise), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        pass, static_cast<const T*>(masked ? masked : pass.gradient), shape.rows, shape.channels, sums, static_cast<T*>(x_gradient));
  });
}

}  // namespace paceline::nn
