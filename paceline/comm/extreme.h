// The least or the greatest of two numbers, the same bits whatever their order and grouping, so that ranks that combine in different orders
// agree: a NaN wins over every number and always becomes the same NaN, and −0 is less than +0. One text, compiled for the CPU and for CUDA.
#pragma once

#include <limits>
#include <type_traits>

#include "paceline/comm/dtype.h"

#if defined(__CUDACC__)
#define PACELINE_EXTREME __host__ __device__ __forceinline__
#else
#define PACELINE_EXTREME [[gnu::always_inline]] inline
#endif

namespace paceline::comm {

/// V is Element, or one of the compiler's vectors of it: conditionals choose lane by lane then.
template <ReduceOp op, class Element, class V>
PACELINE_EXTREME V extreme(V a, V b) {
  static_assert(op == ReduceOp::min || op == ReduceOp::max);
  constexpr bool kLeast = op == ReduceOp::min;
  V result;
  if constexpr (kLeast) {
    result = b < a ? b : a;
  } else {
    result = b > a ? b : a;
  }
  if constexpr (std::is_floating_point_v<Element>) {
    constexpr Element kNan = std::numeric_limits<Element>::quiet_NaN();
    // −0 equals +0; their sum is +0, and so is that of their opposites.
    const V zero = kLeast ? -(-a - b) : a + b;
    result = (a == V{}) & (b == V{}) ? zero : result;
    result = (a == a) & (b == b) ? result : V{} + kNan;
  }
  return result;
}

}  // namespace paceline::comm
