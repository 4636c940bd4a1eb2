// Turns an image file into a network's input.
#pragma once

#include <string>

#include "paceline/data/augment.h"
#include "paceline/data/dataset.h"
#include "paceline/data/image_decoder.h"

namespace paceline::data {

/// The middle square of an image: `share` of its shorter side.
Box middle_box(ImageSize size, float share);

/// For the test images of an image folder: what remains after cropping 256 pixels to 224.
inline constexpr float kMiddleShare = 224.0f / 256.0f;

/// Decodes the needed part of an image whose size is known, and resizes the box to 3 × side × side floats. Keeps its buffers per thread.
void resize_box(const std::string& file, std::span<const std::uint8_t> bytes, ImageSize size, Box box, std::int64_t side, bool flip,
                const Normalisation& normalisation, float* out);

/// An image processed like a dataset's test data: the middle square, resized and normalised, in greyscale if the dataset is. ConfigError
/// unless the set's samples have the shape {1 or 3, side, side}; DataError if the file cannot be read.
void read_as_input(const std::string& file, const Info& info, float* out);

}  // namespace paceline::data
