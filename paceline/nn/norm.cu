// All kernels arrange their threads in the same way. A thread owns eight neighbouring channels (16 bytes of bf16) and walks down the rows,
// so that a channel's constants stay in registers; up to eight threads side by side make a whole line of memory. blockIdx.y counts such
// strips of channels, blockIdx.x the blocks that share the rows of a strip: a block then has few channels to sum, however many the tensor
// has.
//
// Memory bandwidth limits these kernels: each thread loads several rows before it uses the first, unconverted, and converts them to floats
// only then. The second kernel of a pair walks up the rows, since the last ones that the first kernel read are still in the cache, and it
// starts while the first computes its last sum.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/nn/norm_cuda.h"
#include "paceline/nn/norm_rows.cuh"

namespace paceline::nn {
namespace {

constexpr int kWarp = 32;
constexpr int kMostStrip = kMostLanes * kVector;      // channels
constexpr int kReduceThreads = 512;                   // one block per multiprocessor, which leaves a thread 128 registers
constexpr int kApplyThreads = 256, kApplyBlocks = 4;  // blocks per multiprocessor: 64 registers
constexpr int kMostApplyBlocks = 132 * kApplyBlocks;  // of an H100 or H200
constexpr int kWarpsOfReduction = kReduceThreads / kWarp;

/// In the first kernel of a pair: lets the second start if there is room. It must not use results of the first before it has waited.
__device__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// In the second kernel: returns when the first has ended and its results are visible. Every thread calls it first.
__device__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Sums two values per channel over the threads of the block, then, in the last block to finish, over all blocks; calls
/// finish(channel, first, second) there for every channel. All threads of all blocks must call it.
template <class Finish>
__device__ void reduce_over_all(Eight first, Eight second, const Walk& walk, int channels, const NormScratch& scratch,
                                const Finish& finish) {
  __shared__ float of_warps[kWarpsOfReduction][2 * kMostStrip];
  __shared__ double of_parts[2 * kMostNormChannels];
  __shared__ bool last;
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int strip = walk.lanes * kVector;
  for (int distance = kWarp / 2; distance >= walk.lanes; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      first.v[i] += __shfl_xor_sync(0xffffffffu, first.v[i], distance);
      second.v[i] += __shfl_xor_sync(0xffffffffu, second.v[i], distance);
    }
  }
  if (lane < walk.lanes) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      of_warps[warp][lane * kVector + i] = first.v[i];
      of_warps[warp][strip + lane * kVector + i] = second.v[i];
    }
  }
  __syncthreads();
  // partial: [blockIdx.x][first or second][channels]
  const int channel = static_cast<int>(blockIdx.y) * strip + thread % strip;
  if (thread < 2 * strip && channel < channels) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarpsOfReduction; ++w) sum += of_warps[w][thread];
    scratch.partial[(static_cast<std::int64_t>(blockIdx.x) * 2 + thread / strip) * channels + channel] = sum;
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) last = atomicAdd(scratch.counter, 1u) == gridDim.x * gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  // Each thread has four sums of a row of `partial`; if there are more threads, several share the rows. parts × 2 × channels fits: at most
  // four doubles a thread where parts > 1.
  const int columns = 2 * channels / 4, parts = max(1, kReduceThreads / columns), rows = static_cast<int>(gridDim.x);
  for (int t = thread; t < parts * columns; t += kReduceThreads) {
    const int part = t / columns, column = t % columns;
    double sums[4] = {};
#pragma unroll 8
    for (int row = part; row < rows; row += parts) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(scratch.partial) + static_cast<std::int64_t>(row) * columns + column);
      sums[0] += four.x, sums[1] += four.y, sums[2] += four.z, sums[3] += four.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) of_parts[4 * t + i] = sums[i];  // [part][first or second][channels]
  }
  if (thread == 0) *scratch.counter = 0;  // ready for the next launch
  __syncthreads();
  for (int c = thread; c < channels; c += kReduceThreads) {
    double a = 0, b = 0;
#pragma unroll 4
    for (int part = 0; part < parts; ++part) a += of_parts[2 * part * channels + c], b += of_parts[(2 * part + 1) * channels + c];
    finish(c, a, b);
  }
}

template <class T>
__global__ void __launch_bounds__(kReduceThreads)
    statistics(const T* x, std::int64_t rows, int channels, float epsilon, float momentum, float* mean, float* inverse_deviation,
               float* running_mean, float* running_variance, NormScratch scratch) {
  constexpr int kBatch = 16 / sizeof(T);
  const Walk walk(rows, channels, Order::down);
  Eight sum{}, squares{};
  for (std::int64_t row = walk.row; row < rows; row += kBatch * walk.step) {
    Packed<T> batch[kBatch];
    fetch<Cache::keep>(batch, x, walk, row);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const Eight value = unpack(batch[b]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum.v[i] += value.v[i], squares.v[i] += value.v[i] * value.v[i];
    }
  }
  reduce_over_all(sum, squares, walk, channels, scratch, [&](int c, double total, double total_squares) {
    const float mean_before = running_mean[c], variance_before = running_variance[c];
    const double n = static_cast<double>(rows), average = total / n;
    const double variance = fmax(total_squares / n - average * average, 0.0);
    mean[c] = static_cast<float>(average);
    inverse_deviation[c] = static_cast<float>(rsqrt(variance + epsilon));
    running_mean[c] = mean_before + momentum * (static_cast<float>(average) - mean_before);
    running_variance[c] = variance_before + momentum * (static_cast<float>(variance * n / fmax(n - 1, 1.0)) - variance_before);
  });
}

/// The norm of a thread's channels as x · scale + shift. Both directions use it: the relu is open backward just where it was forward.
struct Affine {
  Eight scale, shift;
};

/// `spread`: as in launch_norm_apply.
__device__ Affine affine_of(const float* mean, const float* spread, float epsilon, const float* weight, const float* bias, int channel) {
  Affine out = {load(weight + channel), load(bias + channel)};
  const Eight centre = load(mean + channel);
  Eight inverse = load(spread + channel);
  if (epsilon > 0) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) inverse.v[i] = rsqrtf(inverse.v[i] + epsilon);
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    out.scale.v[i] *= inverse.v[i];
    out.shift.v[i] -= centre.v[i] * out.scale.v[i];
  }
  return out;
}

template <class T, bool kRelu, bool kResidual>
__global__ void __launch_bounds__(kApplyThreads, kApplyBlocks)
    apply(const T* x, const T* residual, std::int64_t rows, int channels, const float* mean, const float* spread, float epsilon,
          const float* weight, const float* bias, T* y) {
  wait_for_previous_kernel();
  constexpr int kBatch = 8 / sizeof(T) / (kResidual ? 2 : 1);
  const Walk walk(rows, channels, Order::up);
  Packed<T> inputs[kBatch], residuals[kBatch];
  const auto fetch_both = [&](std::int64_t row) {
    fetch<Cache::pass>(inputs, x, walk, row);
    if constexpr (kResidual) fetch<Cache::pass>(residuals, residual, walk, row);
  };
  fetch_both(walk.row);  // in flight together with the constants
  const Affine affine = affine_of(mean, spread, epsilon, weight, bias, walk.channel);
  for (std::int64_t row = walk.row; row < rows; fetch_both(row += kBatch * walk.step)) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      Eight value = unpack(inputs[b]), other;
      if constexpr (kResidual) other = unpack(residuals[b]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        value.v[i] = value.v[i] * affine.scale.v[i] + affine.shift.v[i];
        if constexpr (kResidual) value.v[i] += other.v[i];
        if constexpr (kRelu) value.v[i] = fmaxf(value.v[i], 0.0f);
      }
      if (walk.has(row, b)) store(y + walk.at(row, b), value);
    }
  }
}

/// With n rows, g the gradient after the relu and x̂ the normalised x, the gradient of x is scale · (g − Σg/n − x̂ · Σ(g·x̂)/n), which is
/// g · scale + x · slope + offset: `terms` takes slope and offset. The rows give Σ g·(x − mean), which the inverse deviation makes Σ g·x̂.
/// `kMasked`: y tells where the relu was open, and the gradient after it is stored.
template <class T, bool kRelu, bool kMasked>
__global__ void __launch_bounds__(kReduceThreads)
    backward_reduce(NormBackward pass, std::int64_t rows, int channels, bool add, float* weight_gradient, float* bias_gradient,
                    float* terms, T* masked, NormScratch scratch) {
  constexpr int kBatch = 8 / sizeof(T);
  constexpr Cache kCache = kMasked ? Cache::pass : Cache::keep;  // `masked` takes the place of the gradient
  const Walk walk(rows, channels, Order::down);
  Packed<T> gradients[kBatch], inputs[kBatch], outputs[kBatch];
  const auto fetch_all = [&](std::int64_t row) {
    fetch<kCache>(gradients, pass.gradient, walk, row);
    fetch<Cache::keep>(inputs, pass.x, walk, row);
    if constexpr (kMasked) fetch<Cache::pass>(outputs, pass.y, walk, row);
  };
  fetch_all(walk.row);  // in flight together with the constants
  const Eight centre = load(pass.mean + walk.channel);
  Affine affine{};
  if constexpr (kRelu && !kMasked) affine = affine_of(pass.mean, pass.inverse_deviation, 0, pass.weight, pass.bias, walk.channel);
  Eight by_bias{}, by_weight{};
  for (std::int64_t row = walk.row; row < rows; fetch_all(row += kBatch * walk.step)) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      Eight gradient = unpack(gradients[b]), output{};
      const Eight x = unpack(inputs[b]);
      if constexpr (kMasked) output = unpack(outputs[b]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if constexpr (kRelu && !kMasked) output.v[i] = x.v[i] * affine.scale.v[i] + affine.shift.v[i];
        if constexpr (kRelu) gradient.v[i] = output.v[i] > 0 ? gradient.v[i] : 0.0f;
        by_bias.v[i] += gradient.v[i];
        by_weight.v[i] += gradient.v[i] * (x.v[i] - centre.v[i]);
      }
      if constexpr (kMasked)
        if (walk.has(row, b)) store(masked + walk.at(row, b), gradient);
    }
  }
  reduce_over_all(by_bias, by_weight, walk, channels, scratch, [&](int c, double bias_sum, double centred_sum) {
    const float bias_before = add ? bias_gradient[c] : 0.0f, weight_before = add ? weight_gradient[c] : 0.0f;
    const double inverse = pass.inverse_deviation[c], scale = pass.weight[c] * inverse, weight_sum = centred_sum * inverse;
    bias_gradient[c] = bias_before + static_cast<float>(bias_sum);
    weight_gradient[c] = weight_before + static_cast<float>(weight_sum);
    const double slope = -scale * inverse * weight_sum / static_cast<double>(rows);
    terms[c] = static_cast<float>(slope);
    terms[channels + c] = static_cast<float>(-scale * bias_sum / static_cast<double>(rows) - slope * pass.mean[c]);
  });
}

/// `kMask`: the gradient still has to go through the relu, whose state x tells.
template <class T, bool kMask>
__global__ void __launch_bounds__(kApplyThreads, kApplyBlocks)
    backward_apply(NormBackward pass, const T* gradient, std::int64_t rows, int channels, const float* terms, T* x_gradient) {
  wait_for_previous_kernel();
  constexpr int kBatch = 4 / sizeof(T);
  const Walk walk(rows, channels, Order::up);
  Packed<T> gradients[kBatch], inputs[kBatch];
  const auto fetch_both = [&](std::int64_t row) {
    fetch<Cache::keep>(gradients, gradient, walk, row);
    fetch<Cache::pass>(inputs, pass.x, walk, row);
  };
  fetch_both(walk.row);  // in flight together with the constants
  const Affine affine = affine_of(pass.mean, pass.inverse_deviation, 0, pass.weight, pass.bias, walk.channel);
  const Eight slope = load(terms + walk.channel), offset = load(terms + channels + walk.channel);
  for (std::int64_t row = walk.row; row < rows; fetch_both(row += kBatch * walk.step)) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      Eight value = unpack(gradients[b]);
      const Eight x = unpack(inputs[b]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if constexpr (kMask) value.v[i] = x.v[i] * affine.scale.v[i] + affine.shift.v[i] > 0 ? value.v[i] : 0.0f;
        value.v[i] = value.v[i] * affine.scale.v[i] + (x.v[i] * slope.v[i] + offset.v[i]);
      }
      if (walk.has(row, b)) store(x_gradient + walk.at(row, b), value);
    }
  }
}

/// Blocks for the rows × strips of channels: about `most`, or fewer if a thread would have less than two rows.
dim3 grid_for(const NormShape& shape, int threads, int most) {
  const int lanes = lanes_for(shape.channels), strips = (shape.channels + lanes * kVector - 1) / (lanes * kVector);
  const std::int64_t rows_of_two = 2 * (threads / lanes);
  const std::int64_t wanted = (shape.rows + rows_of_two - 1) / rows_of_two;
  return {static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, std::max(1, most / strips))), static_cast<unsigned>(strips)};
}

/// `early`: the kernel may start before its predecessor in the stream has ended, and waits itself.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const dim3& grid, int threads, bool early, void* stream, const Arguments&... arguments) {
  cudaLaunchAttribute start_early{};
  start_early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  start_early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &start_early, config.numAttrs = early ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status != cudaSuccess) throw Error(std::string("a batch-norm kernel failed: ") + cudaGetErrorString(status));
}

template <class Kernel, class... Arguments>
void launch_reduction(const NormShape& shape, Kernel kernel, void* stream, const Arguments&... arguments) {
  launch(kernel, grid_for(shape, kReduceThreads, kMostNormBlocks), kReduceThreads, false, stream, arguments...);
}

template <class Kernel, class... Arguments>
void launch_application(const NormShape& shape, Kernel kernel, void* stream, const Arguments&... arguments) {
  launch(kernel, grid_for(shape, kApplyThreads, kMostApplyBlocks), kApplyThreads, true, stream, arguments...);
}

/// Calls run with a null pointer of the element type: its way of passing a type.
template <class Run>
void with_type(const NormShape& shape, const Run& run) {
  if (shape.bf16) run(static_cast<__nv_bfloat16*>(nullptr));
  else run(static_cast<float*>(nullptr));
}

}  // namespace

void launch_norm_statistics(const NormShape& shape, const void* x, float epsilon, float momentum, float* mean, float* inverse_deviation,
                            float* running_mean, float* running_variance, const NormScratch& scratch, void* stream) {
  with_type(shape, [&]<class T>(T*) {
    launch_reduction(shape, statistics<T>, stream, static_cast<const T*>(x), shape.rows, shape.channels, epsilon, momentum, mean,
                     inverse_deviation, running_mean, running_variance, scratch);
  });
}

void launch_norm_apply(const NormShape& shape, const void* x, const void* residual, const float* mean, const float* spread, float epsilon,
                       const float* weight, const float* bias, bool relu, void* y, void* stream) {
  with_type(shape, [&]<class T>(T*) {
    const auto kernel =
        relu ? (residual ? apply<T, true, true> : apply<T, true, false>) : (residual ? apply<T, false, true> : apply<T, false, false>);
    launch_application(shape, kernel, stream, static_cast<const T*>(x), static_cast<const T*>(residual), shape.rows, shape.channels, mean,
                       spread, epsilon, weight, bias, static_cast<T*>(y));
  });
}

void launch_norm_backward_reduce(const NormShape& shape, const NormBackward& pass, bool add, float* weight_gradient, float* bias_gradient,
                                 float* terms, void* masked, const NormScratch& scratch, void* stream) {
  with_type(shape, [&]<class T>(T*) {
    const auto kernel = !pass.relu ? backward_reduce<T, false, false>
                        : masked   ? backward_reduce<T, true, true>
                                   : backward_reduce<T, true, false>;
    launch_reduction(shape, kernel, stream, pass, shape.rows, shape.channels, add, weight_gradient, bias_gradient, terms,
                     static_cast<T*>(masked), scratch);
  });
}

void launch_norm_backward_apply(const NormShape& shape, const NormBackward& pass, const float* terms, const void* masked, void* x_gradient,
                                void* stream) {
  with_type(shape, [&]<class T>(T*) {
    const auto kernel = pass.relu && !masked ? backward_apply<T, true> : backward_apply<T, false>;
    launch_application(shape, kernel, stream, pass, static_cast<const T*>(masked ? masked : pass.gradient), shape.rows, shape.channels,
                       terms, static_cast<T*>(x_gradient));
  });
}

}  // namespace paceline::nn
