// int8: 127 levels of each sign, with stochastic rounding, so that the expectation of what is sent is the value.
//
//   s = max|a| of the block / 127        q = ⌊a/s + u⌋, u uniform in [0, 1), 16 bits        sent: s · q
//
// Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and encoding", NIPS 2017, with the maximum as the norm: a
// Euclidean norm leaves most of 127 levels unused. On the wire: a byte per value and 4 bytes per block; ratio 3.97 for blocks of 512. The
// error of a value is below s, and its mean is zero.
#include "paceline/compress/block_coder.h"
#include "paceline/compress/compressor.h"
#include "paceline/compress/device_code.h"

namespace paceline::compress {
namespace {

struct Int8 {
  static constexpr const char* kName = "int8";
  static constexpr float kTop = 127;

  [[gnu::always_inline]] static void encode(float* values, std::int64_t n, float scale, float inverse, const Draws& draws,
                                            std::byte* bytes) {
    const float fixed_point = inverse * 0x1p16f;  // 16 bits after the binary point: the shift below is ⌊ ⌋
    draws.for_each(n, [=](std::int64_t i, std::uint32_t draw) PACELINE_INLINE {
      const std::int32_t moved = static_cast<std::int32_t>(values[i] * fixed_point) + static_cast<std::int32_t>(draw);
      const std::int32_t q = std::min(moved >> 16, 127);  // the largest value is 127 s only up to a rounding
      bytes[i] = static_cast<std::byte>(q);
      values[i] -= static_cast<float>(q) * scale;
    });
  }

  [[gnu::always_inline]] static float decode(std::byte byte) { return static_cast<float>(static_cast<std::int8_t>(byte)); }
};

}  // namespace

Compressor int8() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<BlockCoder<Int8>>(config); },
          .on_gpu = int8_on_gpu};
}

}  // namespace paceline::compress
