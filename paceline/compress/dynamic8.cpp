// dynamic8: 8-bit floats whose exponent takes as few bits as it needs, the rest being fraction.
//
//   byte = sign, E zeros, a one, 6−E bits of fraction: the bits cut the decade 10⁻ᴱ⁻¹ … 10⁻ᴱ into 2⁶⁻ᴱ equal bins, and the byte means the
//   middle of its bin, times max|a| of the block. A byte of zeros means zero. A value becomes the nearest of these.
//
// Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016 (dynamic tree quantisation). On the wire: a byte a value
// and 4 bytes a block; ratio 3.97 for blocks of 512. Error at most half a bin: 0.7% of the block's maximum for the largest values, and
// seven decades are told from zero. Rounding is to the nearest, so bias is left to error feedback.
//
// A table of what the first bits of a float become replaces arithmetic: its exponent and 8 bits of its fraction, so bins end at numbers of
// that many bits.
#include <array>

#include "paceline/compress/block_coder.h"
#include "paceline/compress/compressor.h"

namespace paceline::compress {
namespace {

constexpr std::array<double, 7> kTenths = {1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6};

/// What every byte means.
constexpr auto kLevels = [] {
  std::array<float, 256> levels{};
  for (unsigned code = 1; code < 128; ++code) {
    const int bits = std::bit_width(code) - 1;  // of the fraction; behind the leading one
    const double bins = 1 << bits;
    levels[code] = static_cast<float>((0.1 + 0.9 * (code - bins + 0.5) / bins) * kTenths[6 - bits]);
    levels[128 + code] = -levels[code];
  }
  return levels;
}();

constexpr int kDropped = 23 - 8;                                                      // bits of a float that do not matter
constexpr std::uint32_t kFirst = std::bit_cast<std::uint32_t>(0x1p-22f) >> kDropped;  // smaller ones become zero
constexpr std::uint32_t kKeys = (std::bit_cast<std::uint32_t>(1.0f) >> kDropped) - kFirst + 1;

/// What the first bits of a magnitude become; of negative values in the second half.
constexpr auto kCodes = [] {
  std::array<std::uint8_t, 2 * kKeys> codes{};
  unsigned code = 0;
  for (std::uint32_t key = 0; key < kKeys; ++key) {
    const double value = std::bit_cast<float>(((kFirst + key) << kDropped) | (1u << (kDropped - 1)));
    while (code < 127 && value - kLevels[code] > kLevels[code + 1] - value) ++code;
    codes[key] = static_cast<std::uint8_t>(code);
    codes[kKeys + key] = static_cast<std::uint8_t>(128 + code);
  }
  return codes;
}();

struct Dynamic8 {
  static constexpr const char* kName = "dynamic8";
  static constexpr float kTop = 1;

  // Tile by tile: vectors before and after the look-ups, which no vector does.
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
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<BlockCoder<Dynamic8>>(config); }};
}

}  // namespace paceline::compress
