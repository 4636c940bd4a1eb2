// What the formulas of rules/ are written with: one source, compiled for the CPU and for CUDA.
//
// A rule is a type with static members, so that the loop around it knows everything at compile time:
//
//   kStates, kStateNames    the flat buffers that it keeps in addition to the parameters
//   kNorms                  which norms of a tensor its trust factor needs, if it has one
//   apply(…)                the new values of one element
//
// Invariant: the bits of an update depend only on its inputs, not on the vector width, the processor or the device. A product that is
// added to something must therefore be rounded separately: product() forbids the fused multiply-add on the GPU, the attributes of
// simd.h do on the CPU (where only some instruction sets have it).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#if defined(__CUDACC__)
#define PACELINE_ELEMENT __host__ __device__ __forceinline__
#else
#define PACELINE_ELEMENT [[gnu::always_inline]] inline
// Redeclared as a pure function: as long as √ may set errno, a loop with it is not vectorised.
extern "C" [[gnu::const]] float sqrtf(float) noexcept;
#endif

namespace paceline::optim {

/// The numbers of one step that every element shares. make_step() computes them in double; on the GPU they are in device memory.
struct Step {
  float rate = 0;
  float scale = 1;              // of the gradient, clipping included
  float decay = 0;              // λ
  float momentum = 0;           // μ
  float trust = 0;              // η of LARS
  float beta1 = 0, fresh1 = 1;  // β₁, 1 − β₁
  float beta2 = 0, fresh2 = 1;  // β₂, 1 − β₂
  float epsilon = 0;
  float correction1 = 1;       // 1 / (1 − β₁ᵗ)
  float corrected_rate = 0;    // rate / (1 − β₁ᵗ)
  float root_correction2 = 1;  // 1 / √(1 − β₂ᵗ)
  float sgd_share = 1;         // rmsprop_warmup: a
  float rmsprop_share = 0;     // rmsprop_warmup: (1 − a) r
};

struct OptimConfig;
struct Hyper;
Step make_step(const OptimConfig& config, const Hyper& hyper);

/// The numbers that the elements of one tensor share.
struct TensorFactors {
  float decay = 0;  // λ, or 0 if the tensor is exempt
  float trust = 1;  // LARS and LAMB: the tensor's own factor of the rate
};

/// The norm that a tensor's trust factor needs in addition to that of the parameters.
enum class Norms { none, gradient, direction };

PACELINE_ELEMENT float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

PACELINE_ELEMENT float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return sqrtf(x);
#endif
}

/// gradient_scale that also keeps the gradient's global norm at most `clip_norm` (0: no limit), with the formula of PyTorch's
/// clip_grad_norm_. `squared_norm` is that of the stored gradient, before any scaling.
PACELINE_ELEMENT float clipped_scale(float gradient_scale, double squared_norm, double clip_norm) {
  const double scale = gradient_scale, factor = clip_norm / (sqrt(scale * scale * squared_norm) + 1e-6);
  return clip_norm > 0 && factor < 1 ? static_cast<float>(scale * factor) : gradient_scale;
}

}  // namespace paceline::optim
