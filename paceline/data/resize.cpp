#include "paceline/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace paceline::data {
namespace {

/// A pixel in one register: red, green, blue and whatever comes behind.
using Four = float __attribute__((vector_size(16)));

Four load(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

}  // namespace

void Taps::aim(float begin, float length, int size, int limit) {
  const float step = length / static_cast<float>(size);
  const float reach = std::max(1.0f, step);
  count = std::min(limit, static_cast<int>(std::ceil(2.0f * reach)));
  first.resize(static_cast<std::size_t>(size));
  weights.resize(static_cast<std::size_t>(size) * static_cast<std::size_t>(count));
  for (int i = 0; i < size; ++i) {
    const float middle = begin + (static_cast<float>(i) + 0.5f) * step;
    // At the border the taps move inwards and the weights of those left are scaled up.
    first[i] = std::clamp(static_cast<int>(std::floor(middle - reach + 0.5f)), 0, limit - count);
    float* weight = weights.data() + static_cast<std::ptrdiff_t>(i) * count;
    float sum = 0;
    for (int t = 0; t < count; ++t)
      sum += weight[t] = std::max(0.0f, 1.0f - std::abs(static_cast<float>(first[i] + t) + 0.5f - middle) / reach);
    for (int t = 0; t < count; ++t) weight[t] /= sum;
  }
}

void Resizer::resize(const Picture& picture, const Box& box, int size, bool flip, const Normalisation& normalisation, float* out) {
  across_.aim(box.x, box.width, size, picture.size.width);
  down_.aim(box.y, box.height, size, picture.size.height);
  const std::ptrdiff_t row_bytes = std::ptrdiff_t{3} * picture.size.width;
  row_.resize(static_cast<std::size_t>(row_bytes) + 1);  // the last pixel is read as four
  for (int y = 0; y < size; ++y) {
    blend_rows(picture.rgb.data() + down_.first[y] * row_bytes, row_bytes, down_.of(y));
    blend_columns(size, flip, normalisation, out + std::ptrdiff_t{size} * y);
  }
}

void Resizer::blend_rows(const std::uint8_t* source, std::ptrdiff_t row_bytes, const float* weight) {
  const std::ptrdiff_t left = std::ptrdiff_t{3} * across_.first.front(), right = std::ptrdiff_t{3} * (across_.first.back() + across_.count);
  float* row = row_.data();
  std::fill(row + left, row + right, 0.0f);
  int tap = 0;
  for (; tap + 1 < down_.count; tap += 2) {  // two source rows at a time: half the traffic to and from `row`
    const std::uint8_t *upper = source + tap * row_bytes, *lower = upper + row_bytes;
    const float a = weight[tap], b = weight[tap + 1];
    for (std::ptrdiff_t i = left; i < right; ++i) row[i] += a * static_cast<float>(upper[i]) + b * static_cast<float>(lower[i]);
  }
  if (tap < down_.count) {
    const std::uint8_t* last = source + tap * row_bytes;
    for (std::ptrdiff_t i = left; i < right; ++i) row[i] += weight[tap] * static_cast<float>(last[i]);
  }
}

void Resizer::blend_columns(int size, bool flip, const Normalisation& normalisation, float* out) const {
  const std::ptrdiff_t plane = std::ptrdiff_t{size} * size;
  const Four centre{normalisation.centre[0], normalisation.centre[1], normalisation.centre[2], 0};
  const Four scale{normalisation.scale[0], normalisation.scale[1], normalisation.scale[2], 0};
  for (int x = 0; x < size; ++x) {
    const float* source = row_.data() + std::ptrdiff_t{3} * across_.first[x];
    const float* weight = across_.of(x);
    Four sum{};
    for (int t = 0; t < across_.count; ++t, source += 3) sum += weight[t] * load(source);
    sum = (sum - centre) * scale;
    float* pixel = out + (flip ? size - 1 - x : x);
    for (int c = 0; c < 3; ++c) pixel[c * plane] = sum[c];
  }
}

}  // namespace paceline::data
