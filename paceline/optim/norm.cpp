#include "paceline/optim/norm.h"

#include <numeric>

#include "paceline/base/simd.h"
#include "paceline/optim/parallel.h"

namespace paceline::optim {
namespace {

struct BlockNorm {
  static constexpr int kLanes = 16;  // part of the order of addition, so the same for every vector width

  struct Arguments {
    const float* values;
    std::int64_t n;
    double* result;
  };

  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    double lanes[kLanes] = {};
    const std::int64_t whole = arguments.n / kLanes * kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        const double value = arguments.values[i + lane];
        lanes[lane] += value * value;
      }
    }
    for (std::int64_t i = whole; i < arguments.n; ++i) {
      const double value = arguments.values[i];
      lanes[i - whole] += value * value;
    }
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    *arguments.result = lanes[0];
  }
};

}  // namespace

double block_squared_norm(const float* values, std::int64_t n) {
  double result = 0;
  Simd<BlockNorm>::run({values, n, &result});
  return result;
}

double squared_norm(const float* values, std::int64_t n) {
  std::vector<double> sums(static_cast<std::size_t>(blocks_of(n)));
  const Segment whole{.offset = 0, .count = n};
  for_each_part({&whole, 1}, [&](std::size_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kBlock) sums[i / kBlock] = block_squared_norm(values + i, std::min(kBlock, end - i));
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace paceline::optim
