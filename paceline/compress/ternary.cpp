// ternary: −s, 0 or s, at random, so that the expectation of what is sent is the (clipped) value.
//
//   s = min(max|a|, c · σ) of the tensor        sent: s · sign(a) · b,   b = 1 with probability min(|a|/s, 1)
//
// Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep learning", NIPS 2017; c is clip_deviations. What
// clipping removes stays in the residual. On the wire: 2 bits per value and 4 bytes per tensor; ratio 16.
//
// Code: for each part the scale, a bit per value for b, and a bit per value for the sign, which is set only if b is.
#include <cmath>

#include "paceline/compress/bits.h"
#include "paceline/compress/compressor.h"
#include "paceline/compress/device_code.h"
#include "paceline/compress/part_coder.h"
#include "paceline/compress/tensor_statistics.h"

namespace paceline::compress {
namespace {

constexpr std::uint32_t kSign = ~kMagnitude;

struct EncodeTernary {
  struct Arguments {
    float* values;
    std::int64_t count;
    float scale;
    const Draws& draws;
    std::byte *sent, *signs;
  };

  [[gnu::always_inline]] static void run(const Arguments& part) {
    const float scale = part.scale, odds = 0x1p16f / scale;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* values = part.values + begin;
      std::uint8_t sent[kFlags] = {}, signs[kFlags] = {};
      part.draws.from(begin).for_each(count, [&](std::int64_t i, std::uint32_t draw) PACELINE_INLINE {
        const auto word = std::bit_cast<std::uint32_t>(values[i]);
        const float chance = std::bit_cast<float>(word & kMagnitude) * odds;
        const std::uint32_t hit = 0u - static_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(draw)) + 0.5f < chance);
        sent[i] = static_cast<std::uint8_t>(hit & 1u);
        signs[i] = static_cast<std::uint8_t>((word >> 31) & hit);
        values[i] -= std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale) & hit) | (word & kSign));
      });
      store_flags(sent, part.sent + begin / 8, count);
      store_flags(signs, part.signs + begin / 8, count);
    });
  }
};

struct DecodeTernary {
  struct Arguments {
    float* sum;
    std::int64_t count;
    float scale;
    const std::byte *sent, *signs;
  };

  [[gnu::always_inline]] static void run(const Arguments& part) {
    const float scale = part.scale;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* sum = part.sum + begin;
      const std::uint64_t sent = load_flags(part.sent + begin / 8, count), signs = load_flags(part.signs + begin / 8, count);
      std::uint32_t sent_half = 0, signs_half = 0;
      const auto set_half = [&](int half) PACELINE_INLINE {
        sent_half = static_cast<std::uint32_t>(sent >> (32 * half));
        signs_half = static_cast<std::uint32_t>(signs >> (32 * half));
      };
      for_each_half(count, set_half, [&](int i, int k) PACELINE_INLINE {
        const std::uint32_t level = (mask_of(sent_half, k) & std::bit_cast<std::uint32_t>(1.0f)) | (mask_of(signs_half, k) & kSign);
        sum[i] += scale * std::bit_cast<float>(level);  // a product: a scale that is NaN reaches every value
      });
    });
  }
};

class Ternary final : public PartCoder {
 public:
  explicit Ternary(const CompressConfig& config) : PartCoder("ternary"), clip_deviations_(config.clip_deviations) {}

 private:
  static constexpr std::int64_t kHead = sizeof(float);  // before the bits of b, which are followed by those of the signs

  std::int64_t bytes_of(const Part& part) const override { return kHead + 2 * bytes_of_flags(part.count); }

  void encode_part(const Part& part, float* values, const Draws& draws, std::byte* code) override {
    const float scale = scale_of(statistics(values, part.count), part.count);
    store(code, scale);
    std::byte* const sent = code + kHead;
    if (scale > 0) Simd<EncodeTernary>::run({values, part.count, scale, draws, sent, sent + bytes_of_flags(part.count)});
    else std::memset(sent, 0, static_cast<std::size_t>(2 * bytes_of_flags(part.count)));
  }

  void check_part(const Part& part, const std::byte* code) const override {
    const std::int64_t bytes = bytes_of_flags(part.count);
    const std::byte *const sent = code + kHead, *const signs = sent + bytes;
    std::byte wrong{};
    for (std::int64_t i = 0; i < bytes; ++i) wrong |= signs[i] & ~sent[i];
    if (wrong != std::byte{}) refuse(name(), "a zero has a sign");
  }

  void decode_part(const Part& part, const std::byte* code, float weight, float* sum) const override {
    const std::byte* const sent = code + kHead;
    Simd<DecodeTernary>::run({sum, part.count, weight * load<float>(code), sent, sent + bytes_of_flags(part.count)});
  }

  float scale_of(const Statistics& known, std::int64_t n) const {
    if (!known.finite()) return kNan;
    const double count = static_cast<double>(n), mean = (known.positive + known.negative) / count;
    const double deviation = std::sqrt(std::max(std::fma(-mean, mean, known.squares / count), 0.0)), clip = clip_deviations_ * deviation;
    const double largest = std::bit_cast<float>(known.largest);
    const auto scale = static_cast<float>(clip > 0 ? std::min(largest, clip) : largest);
    return std::isinf(0x1p16f / scale) ? 0 : scale;  // (nearly) nothing to send
  }

  double clip_deviations_;
};

}  // namespace

Compressor ternary() {
  // No feedback by default: a code's noise is larger than its content, and its residuals would grow from step to step.
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<Ternary>(config); },
          .on_gpu = ternary_on_gpu,
          .feedback = false};
}

}  // namespace paceline::compress
