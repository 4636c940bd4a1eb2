// Images that tests draw, and those as PNG files.
#pragma once

#include "paceline/data/image_decoder.h"
#include "tests/data/fixtures.h"

#ifdef PACELINE_WITH_PNG
#include <png.h>
#endif

namespace paceline::data {

inline DecodedImage plain(int width, int height, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  DecodedImage picture;
  picture.resize({width, height});
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) picture.rgb[i] = red, picture.rgb[i + 1] = green, picture.rgb[i + 2] = blue;
  return picture;
}

/// Red grows to the right and green downwards.
inline DecodedImage slope(int width, int height) {
  DecodedImage picture = plain(width, height, 0, 0, 100);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::uint8_t* pixel = picture.rgb.data() + 3 * (y * width + x);
      pixel[0] = static_cast<std::uint8_t>(255 * x / width);
      pixel[1] = static_cast<std::uint8_t>(255 * y / height);
    }
  return picture;
}

#ifdef PACELINE_WITH_PNG

inline Bytes png_of(const DecodedImage& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<unsigned>(picture.size.width);
  image.height = static_cast<unsigned>(picture.size.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, picture.rgb.data(), 0, nullptr);
  Bytes bytes(size);
  png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.rgb.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

#endif

}  // namespace paceline::data
