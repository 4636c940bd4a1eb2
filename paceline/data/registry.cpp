#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paceline/data/image_input.h"
#include "paceline/data/sets.h"

namespace paceline::data {
namespace {

constexpr std::array<Entry<DatasetKind>, 8> kDatasets{{
    {"shapes", "generated images of ten kinds of shapes; learnable, needs no files", {make_shapes}},
    {"random", "random images and labels, for measuring throughput; needs no files", {.make = make_random, .is_noise = true}},
    {"mnist", "handwritten digits, 28×28 (IDX files, plain or .gz)", {make_mnist}},
    {"cifar10", "small photographs, 32×32, 10 classes (binary files)", {make_cifar10}},
    {"cifar100", "small photographs, 32×32, 100 classes (binary files)", {make_cifar100}},
    {"image_folder",
     "JPEG and PNG files in train/<class>/ and val/<class>/ or test/<class>/",
     {.make = make_image_folder, .middle_share = kMiddleShare}},
    {"text", "the characters of a file; the target is the next character", {make_text}},
    {"tokens",
     "encoded text in .bin files of 16 or 32 bits per token, with llm.c's header or without; see paceline tokenize",
     {make_tokens}},
}};

std::int64_t samples_asked(const DataConfig& config, Split split) {
  return split == Split::train ? config.train_samples : config.test_samples;
}

}  // namespace

std::span<const Entry<DatasetKind>> datasets() { return kDatasets; }

std::int64_t samples_to_use(const DataConfig& config, Split split, std::int64_t available) {
  const std::int64_t asked = samples_asked(config, split);
  if (asked > available)
    throw ConfigError(fmt::format("data.{}_samples={}, but '{}' has only {}; lower it, or use 0 for all",
                                  split == Split::train ? "train" : "test", asked, config.name, available));
  return asked > 0 ? asked : available;
}

std::int64_t samples_to_make(const DataConfig& config, Split split, std::int64_t preferred) {
  constexpr std::int64_t kMostBytes = 256 << 20, kMostMade = std::int64_t{64} << 30;
  const std::int64_t asked = samples_asked(config, split);
  if (config.shape.size() != 3)
    throw ConfigError(
        fmt::format("data.shape must be [channels, height, width] for '{}', not {} numbers", config.name, config.shape.size()));
  const std::int64_t sample_bytes = config.shape[0] * config.shape[1] * config.shape[2];
  if (asked > kMostMade / sample_bytes)
    throw ConfigError(fmt::format("{} samples of {} bytes: '{}' generates at most {} GiB; use fewer, or data in files", asked, sample_bytes,
                                  config.name, kMostMade >> 30));
  return asked > 0 ? asked : std::clamp<std::int64_t>(kMostBytes / sample_bytes, 1, preferred);
}

Info image_info(const DataConfig& config, std::vector<std::int64_t> shape, std::int64_t classes, std::vector<float> mean,
                std::vector<float> deviation) {
  if (!config.normalise) {
    std::ranges::fill(mean, 0.0f);
    std::ranges::fill(deviation, 1.0f);
  }
  return {.key = config.name, .input = std::move(shape), .classes = classes, .mean = std::move(mean), .deviation = std::move(deviation)};
}

}  // namespace paceline::data
