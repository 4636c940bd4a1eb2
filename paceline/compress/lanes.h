// Four numbers that are added lane by lane: the order of a sum then depends on the program, not on the processor's vector width. Every
// processor has registers of this width; wider types would be kept in memory on some. Several sums at a time hide the latency
// of one.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace paceline::compress {

inline constexpr int kLanes = 4;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Integers = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

[[gnu::always_inline]] inline Floats load_lanes(const float* from, std::int64_t count = kLanes) {
  Floats lanes{};
  std::memcpy(&lanes, from, static_cast<std::size_t>(count) * sizeof(float));
  return lanes;
}

/// Lane 0 + lane 1 + …, in double.
[[gnu::always_inline]] inline double sum_of(const Floats& lanes) {
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

}  // namespace paceline::compress
