// The same optimizers on the GPU: one launch for a whole range of tensors, in a form that a CUDA graph can capture.
//
// The constants of a step (rate, gradient scale, bias corrections) are in device memory. Outside a capture, update() first copies its Hyper
// there. Inside a capture it does not, because the graph would replay the captured values forever; set_hyper() must be called before each
// replay:
//
//   capture:  squared_norm(…); update(…)           every step:  set_hyper(hyper, stream); launch the graph
//
// The formulas are those of the CPU (rules/), and the results of sgd, adam and adamw have the same bits. All sums have a fixed order,
// without atomics, so that a run repeats bit for bit; but it is not the CPU's order.
//
// In a build without CUDA, the functions throw ConfigError. This header needs no CUDA header: a stream is the void* behind cudaStream_t.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "paceline/optim/optimizer.h"

namespace paceline::optim {

class CudaOptimizer : public Optimizer {
 public:
  /// Enqueues the values that later updates read.
  virtual void set_hyper(const Hyper& hyper, void* stream) = 0;

  /// Enqueues *result ← squared norm of the gradients of `segments`; `result` is on the device, and Buffers::squared_norm may point to
  /// it.
  virtual void squared_norm(const float* gradients, std::span<const Segment> segments, double* result, void* stream) = 0;
};

/// An optimizer of the current device. `segments` are all tensors of the arena, or the pieces of them that this rank holds, ascending;
/// every later call takes a run of them, and the buffers must start at multiples of 16 bytes.
std::unique_ptr<CudaOptimizer> make_cuda_optimizer(const OptimConfig& config, std::span<const Segment> segments);

/// Enqueues the rounding of n floats to bfloat16, to nearest with ties to even. Both pointers are on the device.
void cast_bf16(const float* input, std::uint16_t* output, std::int64_t n, void* stream);

}  // namespace paceline::optim
