// The factories behind the registry, and what they share. One file each; see registry.cpp for the table.
#pragma once

#include "paceline/data/dataset.h"

namespace paceline::data {

std::unique_ptr<Dataset> make_shapes(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_random(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_mnist(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_cifar10(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_cifar100(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_image_folder(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_text(const DataConfig& config, Split split, std::uint64_t seed);
std::unique_ptr<Dataset> make_tokens(const DataConfig& config, Split split, std::uint64_t seed);

/// data.train_samples or data.test_samples of the `available` ones; 0 means all. Throws ConfigError if there are fewer.
std::int64_t samples_to_use(const DataConfig& config, Split split, std::int64_t available);

/// The number of samples in a generated set: as configured, or else `preferred`, but no more than fit into 256 MiB of pixels.
std::int64_t samples_to_make(const DataConfig& config, Split split, std::int64_t preferred);

/// Info of a set of images; without data.normalise the mean is 0 and the deviation 1.
Info image_info(const DataConfig& config, std::vector<std::int64_t> shape, std::int64_t classes, std::vector<float> mean,
                std::vector<float> deviation);

}  // namespace paceline::data
