// random: random images and labels, generated once. Nothing can be learned from them; they are for measuring throughput.
#include <algorithm>
#include <cstring>

#include "paceline/data/image_set.h"
#include "paceline/data/sets.h"

namespace paceline::data {

std::unique_ptr<Dataset> make_random(const DataConfig& config, Split split, std::uint64_t seed) {
  const std::int64_t count = samples_to_make(config, split, split == Split::train ? 10'000 : 1'000);
  const std::int64_t image_bytes = config.shape[0] * config.shape[1] * config.shape[2];
  Images images{.bytes = std::vector<std::uint8_t>(static_cast<std::size_t>(count * image_bytes)),
                .labels = std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  RandomStream random(seed, Purpose::data, split == Split::train ? 0 : 1);
  for (auto& label : images.labels) label = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(config.classes)));
  for (std::size_t i = 0; i < images.bytes.size(); i += sizeof(std::uint32_t)) {
    const std::uint32_t four = random.next_u32();
    std::memcpy(images.bytes.data() + i, &four, std::min(sizeof four, images.bytes.size() - i));
  }
  // Uniform bytes in 0..255, scaled to 0..1, have mean 1/2 and deviation 1/√12.
  const auto channels = static_cast<std::size_t>(config.shape[0]);
  Info info = image_info(config, config.shape, config.classes, std::vector<float>(channels, 0.5f), std::vector<float>(channels, 0.2887f));
  return std::make_unique<ImageSet>(std::move(info), std::move(images), config, split);
}

}  // namespace paceline::data
