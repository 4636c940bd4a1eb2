// Layouts, gradients and a worker's round trip for the tests of compressors.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "paceline/base/random.h"
#include "paceline/compress/compressor.h"

namespace paceline::compress {

/// Matrices and vectors of odd sizes, with gaps between them, before them and after them.
inline RangeLayout odd_layout() {
  RangeLayout layout{.parts = {}, .length = 3};
  const auto add = [&](std::int64_t rows, std::int64_t columns) {
    layout.parts.push_back({.offset = layout.length, .count = rows * columns, .rows = rows, .columns = columns});
    layout.length += rows * columns + 5;
  };
  add(1, 1), add(37, 53), add(1, 64), add(16, 129), add(1, 513), add(64, 27);
  return layout;
}

inline RangeLayout one_part(std::int64_t count) {
  return {.parts = {{.offset = 0, .count = count, .rows = 1, .columns = count}}, .length = count};
}

/// Values of all signs and sizes, roughly normal; zeros in the gaps.
inline std::vector<float> gradient(const RangeLayout& layout, std::uint64_t seed, float deviation = 0.01f) {
  RandomStream stream(seed, Purpose::test);
  std::vector<float> values(static_cast<std::size_t>(layout.length));
  for (const Part& part : layout.parts)
    for (std::int64_t i = 0; i < part.count; ++i) values[part.offset + i] = deviation * stream.normal();
  return values;
}

inline std::unique_ptr<Coder> coder(const std::string& key, const CompressConfig& config = {}) {
  return find(compressors(), "compressor", key).make.coder(config);
}

inline std::unique_ptr<Linear> linear(const std::string& key, const RangeLayout& layout, const CompressConfig& config = {},
                                      std::uint64_t seed = 1) {
  return find(compressors(), "compressor", key).make.linear(config, layout, seed);
}

inline std::vector<std::string> keys(bool of_coders) {
  std::vector<std::string> keys;
  for (const auto& row : compressors())
    if ((row.make.coder != nullptr) == of_coders) keys.emplace_back(row.key);
  return keys;
}

/// Encodes in place; the code has exactly its size, so that a sanitizer sees what reads beyond.
inline std::vector<std::byte> encode(Coder& coder, const RangeLayout& layout, std::vector<float>& values,
                                     const CodingContext& context = {}) {
  std::vector<std::byte> code(static_cast<std::size_t>(coder.bound(layout)));
  code.resize(static_cast<std::size_t>(coder.encode(layout, values.data(), context, code.data())));
  code.shrink_to_fit();
  return code;
}

inline std::vector<float> decode(const Coder& coder, const RangeLayout& layout, const std::vector<std::byte>& code, float weight = 1) {
  std::vector<float> sum(static_cast<std::size_t>(layout.length));
  coder.decode_add(layout, code, weight, sum.data());
  return sum;
}

}  // namespace paceline::compress
