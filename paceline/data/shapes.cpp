// shapes: images of ten kinds of shapes, each at a random place, of a random size, slightly rotated, in random colours, with noise.
// It can be learned and needs no files: a small convolutional network exceeds 95% within a few epochs.
//
// Invariant: image i of a split depends only on (seed, split, i) and the shape of a sample, so a smaller set is a prefix of a larger
// one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "paceline/data/image_set.h"
#include "paceline/data/sets.h"

namespace paceline::data {
namespace {

/// Whether (u, v) lies in a kind of shape whose middle is (0, 0) and which reaches to about 1; u grows to the right and v downwards.
using Inside = bool (*)(float u, float v);

bool in_square(float u, float v) { return std::max(std::abs(u), std::abs(v)) <= 0.85f; }
bool in_cross(float u, float v) { return std::min(std::abs(u), std::abs(v)) <= 0.3f && std::max(std::abs(u), std::abs(v)) <= 1.0f; }
bool in_stripes(float along, float across) {  // five bands, of which the first, third and fifth are filled
  return std::abs(along) <= 0.9f && std::abs(across) <= 0.9f && static_cast<int>((across + 0.9f) / 0.36f) % 2 == 0;
}
constexpr float kHalfRoot = 0.70710678f;  // rotates by 45 degrees

// The row is the label.
struct Kind {
  const char* name;
  Inside inside;
};
constexpr std::array<Kind, 10> kKinds{{
    {"disc", [](float u, float v) { return u * u + v * v <= 1.0f; }},
    {"ring", [](float u, float v) { return u * u + v * v <= 1.0f && u * u + v * v >= 0.3f; }},
    {"square", in_square},
    {"frame", [](float u, float v) { return in_square(u, v) && !in_square(u * 1.7f, v * 1.7f); }},
    {"triangle", [](float u, float v) { return v <= 0.75f && std::abs(u) <= (v + 1.0f) * 0.55f; }},
    {"cross", in_cross},
    {"saltire", [](float u, float v) { return in_cross((u + v) * kHalfRoot, (u - v) * kHalfRoot); }},
    {"diamond", [](float u, float v) { return std::abs(u) + std::abs(v) <= 1.15f; }},
    {"furrows", [](float u, float v) { return in_stripes(u, v); }},
    {"palings", [](float u, float v) { return in_stripes(v, u); }},
}};

constexpr int kNoise = 32;            // largest change of a byte
constexpr float kLeastContrast = 64;  // mean distance between the two colours, in bytes
constexpr float kMostTurn = 0.2f;     // radians; a square must not become a diamond

/// Colours of shape and background, one byte per channel, redrawn until they differ enough.
void draw_colours(RandomStream& random, std::vector<std::uint8_t>& shape, std::vector<std::uint8_t>& ground) {
  float contrast = 0;
  while (contrast < kLeastContrast) {
    contrast = 0;
    for (std::size_t c = 0; c < shape.size(); ++c) {
      shape[c] = static_cast<std::uint8_t>(random.next_u32() >> 24);
      ground[c] = static_cast<std::uint8_t>(random.next_u32() >> 24);
      contrast += std::abs(static_cast<float>(shape[c]) - static_cast<float>(ground[c])) / static_cast<float>(shape.size());
    }
  }
}

class Painter {
 public:
  Painter(std::int64_t channels, std::int64_t height, std::int64_t width)
      : height_(height), width_(width), shape_(static_cast<std::size_t>(channels)), ground_(shape_.size()) {}

  void paint(Inside inside, RandomStream& random, std::uint8_t* image) {
    const auto side = static_cast<float>(std::min(height_, width_));
    const float radius = side * random.uniform(0.26f, 0.44f);
    const float middle_x = random.uniform(radius, static_cast<float>(width_) - radius);
    const float middle_y = random.uniform(radius, static_cast<float>(height_) - radius);
    const float turn = random.uniform(-kMostTurn, kMostTurn);
    const float along = std::cos(turn) / radius, across = std::sin(turn) / radius;
    draw_colours(random, shape_, ground_);

    const std::int64_t plane = height_ * width_;
    for (std::int64_t y = 0; y < height_; ++y)
      for (std::int64_t x = 0; x < width_; ++x) {
        const float dx = static_cast<float>(x) + 0.5f - middle_x, dy = static_cast<float>(y) + 0.5f - middle_y;
        const auto& colour = inside(dx * along + dy * across, dy * along - dx * across) ? shape_ : ground_;
        for (std::size_t c = 0; c < colour.size(); ++c) image[static_cast<std::int64_t>(c) * plane + y * width_ + x] = colour[c];
      }
    add_noise(random, image, plane * static_cast<std::int64_t>(shape_.size()));
  }

 private:
  static void add_noise(RandomStream& random, std::uint8_t* bytes, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 4) {
      std::uint32_t four = random.next_u32();  // a random byte for each of four bytes
      for (std::int64_t j = i; j < std::min(i + 4, count); ++j, four >>= 8) {
        const int noise = (static_cast<int>(four & 255) - 128) * kNoise / 128;
        bytes[j] = static_cast<std::uint8_t>(std::clamp(bytes[j] + noise, 0, 255));
      }
    }
  }

  std::int64_t height_, width_;
  std::vector<std::uint8_t> shape_, ground_;  // colours
};

}  // namespace

std::unique_ptr<Dataset> make_shapes(const DataConfig& config, Split split, std::uint64_t seed) {
  if (config.classes > static_cast<std::int64_t>(kKinds.size()))
    throw ConfigError(fmt::format("data.classes={}, but there are {} kinds of shapes; data.name=random makes any number of classes",
                                  config.classes, kKinds.size()));
  const std::int64_t count = samples_to_make(config, split, split == Split::train ? 10'000 : 2'000);
  const std::int64_t channels = config.shape[0], height = config.shape[1], width = config.shape[2];
  if (std::min(height, width) < 8)
    throw ConfigError(fmt::format("data.shape: shapes need at least 8×8 pixels to be distinguishable, not {}×{}", height, width));

  const std::int64_t image_bytes = channels * height * width;
  Images images{.bytes = std::vector<std::uint8_t>(static_cast<std::size_t>(count * image_bytes)),
                .labels = std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  Painter painter(channels, height, width);
  for (std::int64_t i = 0; i < count; ++i) {
    RandomStream random(seed, Purpose::data, static_cast<std::uint64_t>(i), split == Split::train ? 0 : 1);
    images.labels[i] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(config.classes)));
    painter.paint(kKinds[images.labels[i]].inside, random, images.bytes.data() + i * image_bytes);
  }
  const auto planes = static_cast<std::size_t>(channels);
  Info info = image_info(config, config.shape, config.classes, std::vector<float>(planes, 0.5f), std::vector<float>(planes, 0.30f));
  for (std::int64_t label = 0; label < config.classes; ++label) info.class_names.emplace_back(kKinds[static_cast<std::size_t>(label)].name);
  return std::make_unique<ImageSet>(std::move(info), std::move(images), config, split);
}

}  // namespace paceline::data
