// The minimum or maximum of two numbers, with the same bits whatever their order and grouping, so that ranks that combine in different
// orders agree: a NaN wins over every number and always becomes the same NaN, and −0 becomes +0. One source for the CPU and CUDA.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "paceline/comm/dtype.h"

#if defined(__CUDACC__)
#define PACELINE_EXTREME __host__ __device__ __forceinline__
#else
#define PACELINE_EXTREME [[gnu::always_inline]] inline
#endif

namespace paceline::comm {

/// x where the condition holds, else y; lane by lane if V is one of the compiler's vectors. The CPU's compiler turns a scalar conditional
/// into a branch and then does not vectorise the loop around it, so bits are selected by masks there.
template <class Condition, class V>
PACELINE_EXTREME V choose(Condition condition, V x, V y) {
#if !defined(__CUDACC__)
  if constexpr (std::is_floating_point_v<V>) {
    using Bits = std::conditional_t<sizeof(V) == 4, std::uint32_t, std::uint64_t>;
    const auto bits = std::bit_cast<Bits>(y);
    return std::bit_cast<V>(bits ^ ((std::bit_cast<Bits>(x) ^ bits) & (Bits{0} - static_cast<Bits>(condition))));
  }
#endif
  return condition ? x : y;
}

/// V is Element or a vector of it.
template <ReduceOp op, class Element, class V>
PACELINE_EXTREME V extreme(V a, V b) {
  static_assert(op == ReduceOp::min || op == ReduceOp::max);
  constexpr bool kLeast = op == ReduceOp::min;
  using Condition = decltype(a < b);
  const Condition takes_b = kLeast ? b < a : b > a;
  if constexpr (std::is_floating_point_v<Element>) {
    constexpr Element kNan = std::numeric_limits<Element>::quiet_NaN();
    const Condition takes_a = kLeast ? a <= b : a >= b;  // if neither holds, one of them is NaN
    return choose(Condition(takes_a | takes_b), choose(takes_b, b, a) + Element{0}, V{} + kNan);
  } else {
    return choose(takes_b, b, a);
  }
}

}  // namespace paceline::comm
