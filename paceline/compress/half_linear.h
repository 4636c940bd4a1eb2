// fp16 and bf16: the range as 16-bit numbers, which the communicator adds directly.
//
// Gaps are sent too: a range is one run of numbers, and gaps are a few zeros.
#pragma once

#include <vector>

#include "paceline/base/half.h"
#include "paceline/base/simd.h"
#include "paceline/compress/compressor.h"

namespace paceline::compress {

template <class Half>
class HalfLinear final : public Linear {
 public:
  HalfLinear(const RangeLayout& layout, Round::Type type) : type_(type), sent_(static_cast<std::size_t>(layout.length)) {}

  int rounds() const override { return 1; }

  Round round(int, const float* values, void*) override {
    Simd<Cast>::run({values, sent_.data(), count()});
    return {sent_.data(), count(), type_};
  }

  void finish(float* values, float* mean, void*) override { Simd<Finish>::run({values, mean, sent_.data(), count()}); }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(sent_.size()); }

  struct Cast {
    struct Arguments {
      const float* values;
      Half* sent;
      std::int64_t n;
    };
    [[gnu::always_inline]] static void run(const Arguments& arguments) {
      const auto [values, sent, n] = arguments;
      for_each_element(n, [values = values, sent = sent](std::int64_t i) PACELINE_INLINE { sent[i] = Half::from(values[i]); });
    }
  };

  struct Finish {
    struct Arguments {
      float* values;
      float* mean;
      const Half* sent;
      std::int64_t n;
    };
    [[gnu::always_inline]] static void run(const Arguments& arguments) {
      const auto [values, mean, sent, n] = arguments;
      for_each_element(n, [values = values, mean = mean, sent = sent](std::int64_t i) PACELINE_INLINE {
        mean[i] = sent[i].value();
        values[i] -= Half::from(values[i]).value();  // what was sent; the mean has since taken its place
      });
    }
  };

  Round::Type type_;
  std::vector<Half> sent_;
};

}  // namespace paceline::compress
