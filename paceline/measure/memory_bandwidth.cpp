#include "paceline/measure/memory_bandwidth.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "paceline/base/clock.h"
#include "paceline/base/simd.h"
#include "paceline/optim/parallel.h"

namespace paceline::measure {
namespace {

struct Triad {
  struct Arguments {
    float* a;
    const float* b;
    const float* c;
    std::int64_t n;
  };

  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    const auto [a, b, c, n] = arguments;
    for_each_element(n, [a = a, b = b, c = c](std::int64_t i) PACELINE_INLINE { a[i] = b[i] + 0.5f * c[i]; });
  }
};

}  // namespace

double memory_bandwidth_gb_per_s(std::int64_t bytes) {
  constexpr int kRounds = 7;
  const optim::Segment whole{.offset = 0, .count = std::max<std::int64_t>(bytes / static_cast<std::int64_t>(sizeof(float)), 1)};
  const auto buffer = [&] { return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(whole.count)); };
  const auto a = buffer(), b = buffer(), c = buffer();
  optim::for_each_part({&whole, 1},
                       [&](std::size_t, std::int64_t begin, std::int64_t end) {  // the threads that will use the pages touch them first
                         for (float* values : {a.get(), b.get(), c.get()}) std::fill(values + begin, values + end, 1.0f);
                       });

  const SteadyClock clock;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const Nanoseconds start = clock.now();
    optim::for_each_part({&whole, 1}, [&](std::size_t, std::int64_t begin, std::int64_t end) {
      Simd<Triad>::run({a.get() + begin, b.get() + begin, c.get() + begin, end - begin});
    });
    best = std::min(best, seconds(clock.now() - start));
  }
  return 3.0 * sizeof(float) * static_cast<double>(whole.count) / best / 1e9;
}

}  // namespace paceline::measure
