// Batch norm with the activation and the residual sum that follow it, for channels-last tensors on a GPU: two kernels forward, two
// backward.
//
//   y = [relu](w · (x − mean)/deviation + b [+ residual])
//
// LibTorch needs five kernels or more for the same, each a pass over memory, and its reductions for channels-last tensors reach a fraction
// of the memory's speed. Sums are formed in a fixed order (threads, blocks, then blocks in their order), so results repeat bit for bit.
// No CUDA header here: a stream is the void* behind cudaStream_t.
#pragma once

#include <cstdint>

namespace paceline::nn {

/// `rows` × `channels` values; channels must be a multiple of 8, at most kMostNormChannels.
struct NormShape {
  std::int64_t rows = 0;
  int channels = 0;
  bool bf16 = false;  // of x, y, residual and their gradients; everything else is fp32
};

constexpr int kMostNormChannels = 2048;
constexpr int kMostNormBlocks = 128;  // of a reduction: nearly one per multiprocessor of an H100 or H200, and powers of two divide evenly

/// Memory that a reduction needs: kMostNormBlocks × 2 × channels floats, and one counter that is zero before the first use.
struct NormScratch {
  float* partial = nullptr;
  unsigned* counter = nullptr;
};

/// Mean and inverse deviation of the batch, per channel; updates the running statistics with `momentum`.
void launch_norm_statistics(const NormShape& shape, const void* x, float epsilon, float momentum, float* mean, float* inverse_deviation,
                            float* running_mean, float* running_variance, const NormScratch& scratch, void* stream);

/// y from x. residual null: none. `spread`: the inverse deviation, or with `epsilon` > 0 the variance, to which epsilon is added.
void launch_norm_apply(const NormShape& shape, const void* x, const void* residual, const float* mean, const float* spread, float epsilon,
                       const float* weight, const float* bias, bool relu, void* y, void* stream);

/// What the backward pass reads. With a residual, `y` tells where the relu was open; without one, x does.
struct NormBackward {
  const void *gradient = nullptr, *x = nullptr, *y = nullptr;
  const float *mean = nullptr, *inverse_deviation = nullptr, *weight = nullptr, *bias = nullptr;
  bool relu = false;
};

/// Gradients of weight and bias (stored, or added), what the gradient of x needs of them in `terms` (2 × channels), and, if `masked` is
/// given, the gradient after the relu, which is that of the residual.
void launch_norm_backward_reduce(const NormShape& shape, const NormBackward& pass, bool add, float* weight_gradient, float* bias_gradient,
                                 float* terms, void* masked, const NormScratch& scratch, void* stream);

/// Gradient of x. `masked` null: pass.gradient goes through the relu here.
void launch_norm_backward_apply(const NormShape& shape, const NormBackward& pass, const float* terms, const void* masked, void* x_gradient,
                                void* stream);

}  // namespace paceline::nn
