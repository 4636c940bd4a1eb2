// int8 and dynamic8: one byte per value, and one scale, the largest magnitude, for each block of consecutive values in a tensor.
//
// Code: for each part, for each of its blocks, the scale (4 bytes) and the values (a byte each). Blocks do not span tensors, whose
// gradients differ in magnitude. A Rule defines the meaning of a byte:
//
//   encode(values, n, scale, inverse, draws, bytes)   the bytes of a block; the values become the residual
//   decode(byte)                                      the value of a byte, in units of the scale
#pragma once

#include <algorithm>
#include <cmath>

#include "paceline/base/simd.h"
#include "paceline/compress/part_coder.h"

namespace paceline::compress {

inline constexpr float kNothing = 1e-30f;  // a block of smaller values counts as zeros; the inverse of its scale would overflow

template <class Rule>
struct EncodeBlocks {
  struct Arguments {
    float* values;
    std::int64_t count, block;
    const Draws& draws;
    std::byte* code;
  };

  [[gnu::always_inline]] static void run(const Arguments& part) {
    std::byte* code = part.code;
    for (std::int64_t begin = 0; begin < part.count; begin += part.block) {
      const std::int64_t n = std::min(part.block, part.count - begin);
      encode(part.values + begin, n, part.draws.from(begin), code);
      code += sizeof(float) + static_cast<std::size_t>(n);
    }
  }

 private:
  [[gnu::always_inline]] static void encode(float* values, std::int64_t n, const Draws& draws, std::byte* code) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(values[i]));
    const float top = std::bit_cast<float>(largest), scale = top / Rule::kTop, inverse = Rule::kTop / top;
    const bool finite = largest < kInfinity;
    std::byte* bytes = code + sizeof(float);
    if (!finite || top < kNothing) {
      store(code, finite ? 0.0f : kNan);
      std::memset(bytes, 0, static_cast<std::size_t>(n));
      return;
    }
    store(code, scale);
    Rule::encode(values, n, scale, inverse, draws, bytes);
  }
};

template <class Rule>
struct DecodeBlocks {
  struct Arguments {
    float* sum;
    std::int64_t count, block;
    const std::byte* code;
    float weight;
  };

  [[gnu::always_inline]] static void run(const Arguments& part) {
    const std::byte* code = part.code;
    for (std::int64_t begin = 0; begin < part.count; begin += part.block) {
      const std::int64_t n = std::min(part.block, part.count - begin);
      const float factor = part.weight * load<float>(code);
      const std::byte* bytes = code + sizeof(float);
      float* sum = part.sum + begin;
      for_each_element(n, [=](std::int64_t i) PACELINE_INLINE { sum[i] += factor * Rule::decode(bytes[i]); });
      code = bytes + n;
    }
  }
};

template <class Rule>
class BlockCoder final : public PartCoder {
 public:
  explicit BlockCoder(const CompressConfig& config) : PartCoder(Rule::kName), block_(config.block) {}

 private:
  std::int64_t bytes_of(const Part& part) const override {
    const std::int64_t blocks = (part.count + block_ - 1) / block_;
    return blocks * static_cast<std::int64_t>(sizeof(float)) + part.count;
  }

  void encode_part(const Part& part, float* values, const Draws& draws, std::byte* code) override {
    Simd<EncodeBlocks<Rule>>::run({values, part.count, block_, draws, code});
  }

  void decode_part(const Part& part, const std::byte* code, float weight, float* sum) const override {
    Simd<DecodeBlocks<Rule>>::run({sum, part.count, block_, code, weight});
  }

  std::int64_t block_;
};

}  // namespace paceline::compress
