#include "paceline/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "paceline/base/error.h"

namespace paceline::data {
namespace {

/// A pixel in one register: red, green, blue and whatever byte follows.
using Four = float __attribute__((vector_size(16)));
constexpr int kLanes = 4;

Four load(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

void store(Four four, float* to) { std::memcpy(to, &four, sizeof four); }

constexpr int whole_registers(int size) { return (size + kLanes - 1) / kLanes * kLanes; }

/// Adds `count` rows, at most four, each with its weight, to what `base` returns for the previous value.
template <class Base>
void sum_rows(const float* const* rows, const float* weights, int count, std::span<float> line, Base base) {
  float* __restrict out = line.data();
  const int size = static_cast<int>(line.size());
  const auto add = [=](auto sum) {
    for (int x = 0; x < size; ++x) out[x] = base(out[x]) + sum(x);
  };
  const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
  const float u = weights[0], v = weights[1], w = weights[2], z = weights[3];
  switch (count) {
    case 1: return add([=](int x) { return u * a[x]; });
    case 2: return add([=](int x) { return u * a[x] + v * b[x]; });
    case 3: return add([=](int x) { return u * a[x] + v * b[x] + w * c[x]; });
    default: return add([=](int x) { return (u * a[x] + v * b[x]) + (w * c[x] + z * d[x]); });
  }
}

}  // namespace

void Taps::aim(float begin, float length, int size, int whole, int offset, int held) {
  const float step = length / static_cast<float>(size);
  const float reach = std::max(1.0f, step);
  count = std::min(whole, static_cast<int>(std::ceil(2.0f * reach)));
  first.resize(static_cast<std::size_t>(size));
  weights.resize(static_cast<std::size_t>(size) * static_cast<std::size_t>(count));
  for (int i = 0; i < size; ++i) {
    const float middle = begin + (static_cast<float>(i) + 0.5f) * step;
    // At the border, the taps move inwards, and the remaining weights are scaled up.
    const int from = std::clamp(static_cast<int>(std::floor(middle - reach + 0.5f)), 0, whole - count);
    first[i] = from - offset;
    ensure(first[i] >= 0 && first[i] + count <= held, "the image holds what its box needs");
    float* weight = weights.data() + static_cast<std::ptrdiff_t>(i) * count;
    float sum = 0;
    for (int t = 0; t < count; ++t)
      sum += weight[t] = std::max(0.0f, 1.0f - std::abs(static_cast<float>(from + t) + 0.5f - middle) / reach);
    for (int t = 0; t < count; ++t) weight[t] /= sum;
  }
}

void Taps::mirror() {
  std::ranges::reverse(first);
  for (std::ptrdiff_t low = 0, high = std::ssize(weights) - count; low < high; low += count, high -= count)
    std::swap_ranges(weights.begin() + low, weights.begin() + low + count, weights.begin() + high);
}

void Taps::extend(int size) {
  while (std::ssize(first) < size) {
    first.push_back(first.back());
    for (int t = 0; t < count; ++t) weights.push_back(weights[weights.size() - static_cast<std::size_t>(count)]);
  }
}

Box Resizer::needed(const Box& box, int size) {
  const float across = std::max(1.0f, box.width / static_cast<float>(size)) + 1,
              down = std::max(1.0f, box.height / static_cast<float>(size)) + 1;
  return {box.x - across, box.y - down, box.width + 2 * across, box.height + 2 * down};
}

void Resizer::resize(const DecodedImage& image, const Box& box, int size, bool flip, const Normalisation& normalisation, float* out) {
  across_.aim(box.x, box.width, size, image.whole.width, image.left, image.size.width);
  down_.aim(box.y, box.height, size, image.whole.height, image.top, image.size.height);
  if (flip) across_.mirror();
  across_.extend(whole_registers(size));
  stride_ = whole_registers(size);
  pixels_.resize(static_cast<std::size_t>(image.size.width) * 3 + 1);  // the last pixel is read as four
  rows_.resize(static_cast<std::size_t>(down_.count * 3 * stride_));
  const std::ptrdiff_t plane = std::ptrdiff_t{size} * size;
  int swept = 0;  // earlier rows have been swept, or are not needed
  for (int y = 0; y < size; ++y) {
    const int first = down_.first[y], last = first + down_.count;
    for (swept = std::max(swept, first); swept < last; ++swept) sweep(image, swept);
    for (int c = 0; c < 3; ++c) blend(y, c, normalisation, {out + c * plane + std::ptrdiff_t{size} * y, static_cast<std::size_t>(size)});
  }
}

void Resizer::blend(int y, int channel, const Normalisation& normalisation, std::span<float> out) {
  const float scale = normalisation.scale[channel], constant = -normalisation.centre[channel] * scale;
  for (int t = 0; t < down_.count; t += 4) {
    const int count = std::min(4, down_.count - t);
    const float* rows[4] = {};
    float weights[4] = {};
    for (int i = 0; i < count; ++i) {
      rows[i] = row(down_.first[y] + t + i) + channel * stride_;
      weights[i] = down_.of(y)[t + i] * scale;
    }
    if (t == 0) sum_rows(rows, weights, count, out, [constant](float) { return constant; });
    else sum_rows(rows, weights, count, out, [](float before) { return before; });
  }
}

void Resizer::sweep(const DecodedImage& image, int y) {
  const std::uint8_t* source = image.rgb.data() + static_cast<std::ptrdiff_t>(y) * image.size.width * 3;
  const auto [left, right] = std::minmax(across_.first.front(), across_.first.back());
  float* __restrict pixels = pixels_.data();
  for (int i = 3 * left; i < 3 * (right + across_.count); ++i) pixels[i] = static_cast<float>(source[i]);
  switch (across_.count) {
    case 2: return sweep_taps<2>(row(y));
    case 3: return sweep_taps<3>(row(y));
    case 4: return sweep_taps<4>(row(y));
    case 5: return sweep_taps<5>(row(y));
    default: return sweep_taps<0>(row(y));
  }
}

// kCount: the number of taps if the compiler can unroll them, 0 if it is not known at compile time.
template <int kCount>
void Resizer::sweep_taps(float* __restrict out) const {
  const std::ptrdiff_t count = kCount > 0 ? kCount : across_.count, stride = stride_;
  const auto pixel = [=, first = across_.first.data(), weights = across_.weights.data(), pixels = pixels_.data()](std::ptrdiff_t x) {
    const float *source = pixels + std::ptrdiff_t{3} * first[x], *weight = weights + x * count;
    Four sum = weight[0] * load(source);
    for (std::ptrdiff_t t = 1; t < count; ++t) sum += weight[t] * load(source + 3 * t);
    return sum;
  };
  for (std::ptrdiff_t x = 0; x < stride; x += kLanes) {
    const Four a = pixel(x), b = pixel(x + 1), c = pixel(x + 2), d = pixel(x + 3);
    const Four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5), bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    store(__builtin_shufflevector(ac, bd, 0, 4, 1, 5), out + x);
    store(__builtin_shufflevector(ac, bd, 2, 6, 3, 7), out + x + stride);
    store(__builtin_shufflevector(__builtin_shufflevector(a, c, 2, 6, 3, 7), __builtin_shufflevector(b, d, 2, 6, 3, 7), 0, 4, 1, 5),
          out + x + 2 * stride);
  }
}

}  // namespace paceline::data
