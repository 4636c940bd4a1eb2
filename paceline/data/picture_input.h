// From the file of a picture to what a network takes.
#pragma once

#include <string>

#include "paceline/data/augment.h"
#include "paceline/data/dataset.h"
#include "paceline/data/picture.h"

namespace paceline::data {

/// The middle square of a picture: `share` of its shorter side.
Box middle_box(PictureSize size, float share);

/// Of an image folder's test pictures: what remains when 256 is cut to 224.
inline constexpr float kMiddleShare = 224.0f / 256.0f;

/// Decodes what is needed of a picture, whose size is known, and resizes the box to 3 × side × side floats. Keeps buffers for each thread.
void resize_box(const std::string& file, std::span<const std::uint8_t> bytes, PictureSize size, Box box, std::int64_t side, bool flip,
                const Normalisation& normalisation, float* out);

/// A picture as the test data of a set has them: the middle square, resized and normalised, grey where the set is. Of a set whose samples
/// have another shape than {1 or 3, side, side}: ConfigError. DataError where the file cannot be read.
void read_as_input(const std::string& file, const Info& info, float* out);

}  // namespace paceline::data
