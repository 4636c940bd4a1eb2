#include "paceline/compress/tensor_statistics.h"

#include <algorithm>
#include <cstring>

#include "paceline/base/simd.h"
#include "paceline/compress/code.h"
#include "paceline/compress/lanes.h"

namespace paceline::compress {
namespace {

struct Collect {
  struct Arguments {
    const float* values;
    std::int64_t n;
    Statistics* result;
  };

  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    for (std::int64_t i = 0; i < arguments.n; i += kStatisticsBlock)
      add_block(arguments.values + i, std::min(kStatisticsBlock, arguments.n - i), *arguments.result);
  }

 private:
  struct Sums {
    Floats positive{}, negative{}, squares{};
    Integers negatives{}, largest{};

    [[gnu::always_inline]] void add(Floats value) {
      const auto word = std::bit_cast<Integers>(value);
      const Integers sign = word >> 31, size = word & static_cast<std::int32_t>(kMagnitude);  // sign: −1 or 0
      negative += std::bit_cast<Floats>(word & sign);
      positive += std::bit_cast<Floats>(word & ~sign);
      squares += value * value;
      negatives -= sign;
      largest = size > largest ? size : largest;
    }

    [[gnu::always_inline]] void add_to(Statistics& result) const {
      result.positive += sum_of(positive);
      result.negative += sum_of(negative);
      result.squares += sum_of(squares);
      for (int lane = 0; lane < kLanes; ++lane) {
        result.negatives += negatives[lane];
        result.largest = std::max(result.largest, static_cast<std::uint32_t>(largest[lane]));
      }
    }
  };

  [[gnu::always_inline]] static void add_block(const float* values, std::int64_t n, Statistics& result) {
    Sums even, odd;
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      even.add(load_lanes(values + i));
      odd.add(load_lanes(values + i + kLanes));
    }
    for (; i < n; i += kLanes) even.add(load_lanes(values + i, std::min<std::int64_t>(kLanes, n - i)));
    even.add_to(result);
    odd.add_to(result);
  }
};

}  // namespace

bool Statistics::finite() const { return largest < kInfinity; }

Statistics statistics(const float* values, std::int64_t n) {
  Statistics result;
  Simd<Collect>::run({values, n, &result});
  return result;
}

}  // namespace paceline::compress
