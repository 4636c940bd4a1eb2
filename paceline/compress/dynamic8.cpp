// dynamic8: 8-bit floats whose exponent takes as few bits as it needs; the rest is fraction.
//
//   byte = sign, E zeros, a one, 6−E bits of fraction: the bits divide the decade 10⁻ᴱ⁻¹ … 10⁻ᴱ into 2⁶⁻ᴱ equal bins, and the byte stands
//   for the middle of its bin, times max|a| of the block. A byte of zeros is zero. A value is rounded to the nearest of these.
//
// Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016 (dynamic tree quantisation). On the wire: a byte per value
// and 4 bytes per block; ratio 3.97 for blocks of 512. Error at most half a bin: 0.7% of the block's maximum for the largest values, and
// seven decades can be distinguished from zero. Rounding is to nearest, so error feedback must correct the bias.
//
// A table indexed by the first bits of a float (its exponent and 8 bits of its fraction) replaces arithmetic, so bins end at numbers of
// that many bits.
#include "paceline/compress/block_coder.h"
#include "paceline/compress/compressor.h"
#include "paceline/compress/device_code.h"
#include "paceline/compress/dynamic8_table.h"

namespace paceline::compress {
namespace {

using namespace dynamic8_table;

struct Dynamic8 {
  static constexpr const char* kName = "dynamic8";
  static constexpr float kTop = 1;

  // Tile by tile: vectorised before and after the look-ups, which cannot be vectorised.
  [[gnu::always_inline]] static void encode(float* values, std::int64_t n, float scale, float inverse, const Draws&, std::byte* bytes) {
    constexpr int kTile = 64;
    std::int64_t i = 0;
    for (; i + kTile <= n; i += kTile) encode_tile<kTile>(values + i, scale, inverse, bytes + i);
    for (; i < n; ++i) encode_tile<1>(values + i, scale, inverse, bytes + i);
  }

  [[gnu::always_inline]] static float decode(std::byte byte) { return kLevels[static_cast<std::uint8_t>(byte)]; }

 private:
  template <int n>
  [[gnu::always_inline]] static void encode_tile(float* values, float scale, float inverse, std::byte* bytes) {
    std::uint16_t keys[n];
    float levels[n];
    for (int i = 0; i < n; ++i) {
      const auto word = std::bit_cast<std::uint32_t>(values[i] * inverse);
      const std::uint32_t key = std::clamp((word & kMagnitude) >> kDropped, kFirst, kFirst + kKeys - 1) - kFirst;  // above 1 by a rounding
      keys[i] = static_cast<std::uint16_t>(key + (word >> 31) * kKeys);
    }
    for (int i = 0; i < n; ++i) {
      const std::uint8_t code = kCodes[keys[i]];
      bytes[i] = static_cast<std::byte>(code);
      levels[i] = kLevels[code];
    }
    for (int i = 0; i < n; ++i) values[i] -= levels[i] * scale;
  }
};

}  // namespace

Compressor dynamic8() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<BlockCoder<Dynamic8>>(config); },
          .on_gpu = dynamic8_on_gpu};
}

}  // namespace paceline::compress
