// ternary: −s, 0 or s, by chance, so that the mean of what is sent is the value (clipped).
//
//   s = min(max|a|, c · σ) of the tensor        sent: s · sign(a) · b,   b = 1 with probability min(|a|/s, 1)
//
// Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep learning", NIPS 2017; c is clip_deviations. What
// clipping takes off stays in the residual. On the wire: 2 bits a value and 4 bytes a tensor; ratio 16.
//
// Code: for each part the scale, a bit a value for b, and a bit a value for the sign, set only where b is.
#include <cmath>

#include "paceline/compress/all.h"
#include "paceline/compress/bits.h"
#include "paceline/compress/code.h"
#include "paceline/compress/draws.h"
#include "paceline/compress/statistics.h"

namespace paceline::compress {
namespace {

constexpr std::uint32_t kSign = ~kMagnitude;

/// One part: values to be encoded or the sum that decoding adds to, and where its bits lie.
struct TernaryPart {
  float* values;
  std::int64_t count;
  float scale;
  const Draws* draws;
  std::byte* sent;
  std::byte* signs;
};

struct EncodeTernary {
  using Arguments = TernaryPart;

  [[gnu::always_inline]] static void run(const TernaryPart& part) {
    const float scale = part.scale, odds = 0x1p16f / scale;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* values = part.values + begin;
      std::uint8_t sent[kFlags] = {}, signs[kFlags] = {};
      part.draws->from(begin).for_each(count, [&](std::int64_t i, std::uint32_t draw) PACELINE_INLINE {
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
  using Arguments = TernaryPart;

  [[gnu::always_inline]] static void run(const TernaryPart& part) {
    const float scale = part.scale;
    for_each_tile(part.count, [&](std::int64_t begin, int count) PACELINE_INLINE {
      float* sum = part.values + begin;
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

class Ternary final : public Coder {
 public:
  explicit Ternary(const CompressConfig& config) : clip_deviations_(config.clip_deviations) {}

  std::int64_t bound(const Layout& layout) const override {
    std::int64_t bytes = 0;
    for (const Part& part : layout.parts) bytes += bytes_of(part);
    return bytes;
  }

  std::int64_t encode(const Layout& layout, float* values, const Moment& moment, std::byte* code) override {
    const Draws draws(moment);
    std::byte* to = code;
    for (const Part& part : layout.parts) {
      const float scale = scale_of(statistics(values + part.offset, part.count), part.count);
      const Draws own = draws.from(part.offset);
      store(to, scale);
      if (scale > 0) Simd<EncodeTernary>::run({values + part.offset, part.count, scale, &own, sent_in(to), signs_in(to, part)});
      else std::memset(sent_in(to), 0, static_cast<std::size_t>(2 * bytes_of_flags(part.count)));
      to += bytes_of(part);
    }
    return to - code;
  }

  void decode_add(const Layout& layout, std::span<const std::byte> code, float weight, float* sum) const override {
    expect_size("ternary", code, bound(layout));
    auto* const begin = const_cast<std::byte*>(code.data());  // only read
    std::byte* from = begin;
    for (const Part& part : layout.parts) {
      const std::byte *sent = sent_in(from), *signs = signs_in(from, part);
      std::byte wrong{};
      for (std::int64_t i = 0; i < bytes_of_flags(part.count); ++i) wrong |= signs[i] & ~sent[i];
      if (wrong != std::byte{}) refuse("ternary", "a zero has a sign");
      from += bytes_of(part);
    }
    from = begin;
    for (const Part& part : layout.parts) {
      Simd<DecodeTernary>::run({sum + part.offset, part.count, weight * load<float>(from), nullptr, sent_in(from), signs_in(from, part)});
      from += bytes_of(part);
    }
  }

  Traffic traffic() const override { return Traffic::dense; }

 private:
  static constexpr std::int64_t kHead = sizeof(float);
  static std::int64_t bytes_of(const Part& part) { return kHead + 2 * bytes_of_flags(part.count); }
  static std::byte* sent_in(std::byte* code) { return code + kHead; }
  static std::byte* signs_in(std::byte* code, const Part& part) { return code + kHead + bytes_of_flags(part.count); }

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
  // No feedback by itself: a code's noise is larger than what it says, and residuals of it would grow from step to step.
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<Ternary>(config); },
          .feedback = false};
}

}  // namespace paceline::compress
