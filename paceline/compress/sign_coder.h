// onebit and sign: a bit a value, and for each tensor what the bits are worth.
//
// Code: for each part, kScales floats and then the signs, a bit each, up to a whole byte. A Rule says
//
//   worth(statistics, n, config)   what values without and with a sign become
//   kScales                        1: the second is the first with a sign; 2: both are sent
//   kTies                          whether zeros get a sign by chance (a vote that ends in a draw), or none
#pragma once

#include "paceline/base/simd.h"
#include "paceline/compress/bits.h"
#include "paceline/compress/code.h"
#include "paceline/compress/compressor.h"
#include "paceline/compress/draws.h"
#include "paceline/compress/statistics.h"

namespace paceline::compress {

struct Worth {
  float positive, negative;
};

struct SignPart {
  float* values;  // to be encoded, or the sum that decoding adds to
  std::int64_t count;
  Worth worth;
  std::byte* bits;
  const Draws* draws;
};

[[gnu::always_inline]] inline std::uint32_t select(std::uint32_t mask, float set, float clear) {
  const auto a = std::bit_cast<std::uint32_t>(set), b = std::bit_cast<std::uint32_t>(clear);
  return b ^ ((a ^ b) & mask);
}

template <bool ties>
struct EncodeSigns {
  using Arguments = SignPart;

  [[gnu::always_inline]] static void run(const SignPart& part) {
    const Worth worth = part.worth;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* values = part.values + begin;
      std::uint8_t flags[kFlags] = {};
      std::uint32_t chance = 0;
      const auto set_half = [&](int half) PACELINE_INLINE {
        if (ties) chance = part.draws->word(static_cast<std::uint32_t>(begin / 32 + half));
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
  using Arguments = SignPart;

  [[gnu::always_inline]] static void run(const SignPart& part) {
    const Worth worth = part.worth;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* sum = part.values + begin;
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
class SignCoder final : public Coder {
 public:
  explicit SignCoder(const CompressConfig& config) : config_(config) {}

  std::int64_t bound(const Layout& layout) const override {
    std::int64_t bytes = 0;
    for (const Part& part : layout.parts) bytes += bytes_of(part);
    return bytes;
  }

  std::int64_t encode(const Layout& layout, float* values, const Moment& moment, std::byte* code) override {
    const Draws draws(moment);
    std::byte* to = code;
    for (const Part& part : layout.parts) {
      const Statistics known = statistics(values + part.offset, part.count);
      const Worth worth = known.finite() ? Rule::worth(known, part.count, config_) : Worth{kNan, kNan};
      store(to, worth.positive);
      if (Rule::kScales == 2) store(to + sizeof(float), worth.negative);
      const Draws own = draws.from(part.offset);
      if (known.finite()) Simd<EncodeSigns<Rule::kTies>>::run({values + part.offset, part.count, worth, to + kHead, &own});
      else std::memset(to + kHead, 0, static_cast<std::size_t>(bytes_of_flags(part.count)));
      to += bytes_of(part);
    }
    return to - code;
  }

  void decode_add(const Layout& layout, std::span<const std::byte> code, float weight, float* sum) const override {
    expect_size(Rule::kName, code, bound(layout));
    auto* from = const_cast<std::byte*>(code.data());  // only read
    for (const Part& part : layout.parts) {
      const float positive = load<float>(from), negative = Rule::kScales == 2 ? load<float>(from + sizeof(float)) : -positive;
      Simd<DecodeSigns>::run({sum + part.offset, part.count, {weight * positive, weight * negative}, from + kHead, nullptr});
      from += bytes_of(part);
    }
  }

  Traffic traffic() const override { return Traffic::dense; }

 private:
  static constexpr std::int64_t kHead = Rule::kScales * sizeof(float);
  static std::int64_t bytes_of(const Part& part) { return kHead + bytes_of_flags(part.count); }

  CompressConfig config_;
};

}  // namespace paceline::compress
