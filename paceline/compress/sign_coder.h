// onebit and sign: a bit per value, and for each tensor the values of the bits.
//
// Code: for each part, kScales floats and then the signs, a bit each, padded to a whole byte. A Rule has
//
//   worth(statistics, n, config)   what non-negative and negative values become
//   kScales                        1: the second is the negated first; 2: both are sent
//   kTies                          whether zeros get a random sign (a tied vote), or none
#pragma once

#include "paceline/base/simd.h"
#include "paceline/compress/bits.h"
#include "paceline/compress/part_coder.h"
#include "paceline/compress/tensor_statistics.h"

namespace paceline::compress {

struct Worth {
  float positive, negative;
};

[[gnu::always_inline]] inline std::uint32_t select(std::uint32_t mask, float set, float clear) {
  const auto a = std::bit_cast<std::uint32_t>(set), b = std::bit_cast<std::uint32_t>(clear);
  return b ^ ((a ^ b) & mask);
}

template <bool ties>
struct EncodeSigns {
  struct Arguments {
    float* values;
    std::int64_t count;
    Worth worth;
    std::byte* bits;
    const Draws& draws;
  };

  [[gnu::always_inline]] static void run(const Arguments& part) {
    const Worth worth = part.worth;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* values = part.values + begin;
      std::uint8_t flags[kFlags] = {};
      std::uint32_t chance = 0;
      const auto set_half = [&](int half) PACELINE_INLINE {
        if (ties) chance = part.draws.word(static_cast<std::uint32_t>(begin / 32 + half));
      };
      for_each_half(count, set_half, [&](int i, int k) PACELINE_INLINE {
        const auto word = std::bit_cast<std::uint32_t>(values[i]);
        std::uint32_t negative = 0u - (word >> 31);
        if constexpr (ties) {
          const std::uint32_t zero = 0u - static_cast<std::uint32_t>((word & kMagnitude) == 0);
          negative = (negative & ~zero) | (mask_of(chance, k) & zero);
        }
        flags[i] = static_cast<std::uint8_t>(negative & 1u);
        values[i] -= std::bit_cast<float>(select(negative, worth.negative, worth.positive));
      });
      store_flags(flags, part.bits + begin / 8, count);
    });
  }
};

struct DecodeSigns {
  struct Arguments {
    float* sum;
    std::int64_t count;
    Worth worth;
    const std::byte* bits;
  };

  [[gnu::always_inline]] static void run(const Arguments& part) {
    const Worth worth = part.worth;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* sum = part.sum + begin;
      const std::uint64_t flags = load_flags(part.bits + begin / 8, count);
      std::uint32_t signs = 0;
      const auto set_half = [&](int half) PACELINE_INLINE { signs = static_cast<std::uint32_t>(flags >> (32 * half)); };
      for_each_half(count, set_half, [&](int i, int k) PACELINE_INLINE {
        sum[i] += std::bit_cast<float>(select(mask_of(signs, k), worth.negative, worth.positive));
      });
    });
  }
};

template <class Rule>
class SignCoder final : public PartCoder {
 public:
  explicit SignCoder(const CompressConfig& config) : PartCoder(Rule::kName), config_(config) {}

 private:
  static constexpr std::int64_t kHead = Rule::kScales * sizeof(float);

  std::int64_t bytes_of(const Part& part) const override { return kHead + bytes_of_flags(part.count); }

  void encode_part(const Part& part, float* values, const Draws& draws, std::byte* code) override {
    const Statistics known = statistics(values, part.count);
    const Worth worth = known.finite() ? Rule::worth(known, part.count, config_) : Worth{kNan, kNan};
    store(code, worth.positive);
    if (Rule::kScales == 2) store(code + sizeof(float), worth.negative);
    if (known.finite()) Simd<EncodeSigns<Rule::kTies>>::run({values, part.count, worth, code + kHead, draws});
    else std::memset(code + kHead, 0, static_cast<std::size_t>(bytes_of_flags(part.count)));
  }

  void decode_part(const Part& part, const std::byte* code, float weight, float* sum) const override {
    const float positive = load<float>(code), negative = Rule::kScales == 2 ? load<float>(code + sizeof(float)) : -positive;
    Simd<DecodeSigns>::run({sum, part.count, {weight * positive, weight * negative}, code + kHead});
  }

  CompressConfig config_;
};

}  // namespace paceline::compress
