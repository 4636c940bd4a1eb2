// A loop compiled for each vector width that the processor may have, chosen at run time.
//
// A kernel is a type with `Arguments` and an always-inlined `static void run(const Arguments&)`. On x86_64 it is compiled three times
// (SSE2, AVX2, AVX-512); elsewhere the baseline already has the vectors (NEON).
//
// fp-contract=off: AVX-512 and NEON have a fused multiply-add, SSE2 does not, so contraction would give different bits on different
// processors. All other operations of the loops (+ − × ÷ √) round in the same way in every instruction set.
#pragma once

#include <cstdint>

#define PACELINE_INLINE __attribute__((always_inline))  // a lambda of a kernel must become part of each compiled width

namespace paceline {

/// Calls body(i) for every 0 ≤ i < n; calls with different i must touch different elements. Tiles of a fixed length are unrolled whole,
/// which saves a tenth of the time of a loop that memory limits.
template <class Body>
[[gnu::always_inline]] inline void for_each_element(std::int64_t n, const Body& body) {
  constexpr int kTile = 64;
  std::int64_t i = 0;
  for (; i + kTile <= n; i += kTile) {
#pragma GCC ivdep
    for (int k = 0; k < kTile; ++k) body(i + k);
  }
  for (; i < n; ++i) body(i);
}

template <class Kernel>
class Simd {
 public:
  using Arguments = typename Kernel::Arguments;

  static void run(const Arguments& arguments) {
    static const auto widest = choose();
    widest(arguments);
  }

 private:
  using Function = void (*)(const Arguments&);

#define PACELINE_EXACT gnu::optimize("fp-contract=off"), gnu::noinline
  [[PACELINE_EXACT]] static void baseline(const Arguments& arguments) { Kernel::run(arguments); }

#if defined(__x86_64__)
  [[PACELINE_EXACT, gnu::target("avx2")]] static void avx2(const Arguments& arguments) { Kernel::run(arguments); }
  [[PACELINE_EXACT, gnu::target("avx512f")]] static void avx512(const Arguments& arguments) { Kernel::run(arguments); }

  static Function choose() {
    if (__builtin_cpu_supports("avx512f")) return avx512;
    return __builtin_cpu_supports("avx2") ? avx2 : baseline;
  }
#else
  static Function choose() { return baseline; }
#endif
#undef PACELINE_EXACT
};

}  // namespace paceline
