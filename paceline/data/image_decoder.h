// Compressed images: JPEG through libjpeg, PNG through libpng; recognised by their first bytes, not by their names.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace paceline::data {

struct ImageSize {
  int width = 0, height = 0;
};

/// In pixels of the image; pixel i extends from i to i+1.
struct Box {
  float x = 0, y = 0, width = 0, height = 0;
};
inline constexpr Box kEverything = {0, 0, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};

/// Rows of RGB bytes: a whole image, or the part of it that begins at (left, top). The buffer is reused from image to image.
struct DecodedImage {
  ImageSize size;   // of the part that is held
  ImageSize whole;  // of the image, at the scale at which it was decoded
  int left = 0, top = 0;
  std::vector<std::uint8_t> rgb;
  void resize(ImageSize to);  // to a whole image of that size; throws std::length_error beyond 2^30 bytes
};

/// `file` is for error messages. All of these throw DataError for an image that is damaged, truncated, or of a format that this build
/// does not support.
ImageSize image_size(const std::string& file, std::span<const std::uint8_t> bytes);

/// Decodes an image. The result may be reduced by 1/2, …, 1/shrink (shrink is 1, 2, 4 or 8), and needs to contain only what `needed`
/// touches (in pixels of the whole image at full size), which saves a JPEG decoder most of its work. The needed pixels have the same bits
/// whatever else is decoded.
void decode_image(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, DecodedImage& image,
                  const Box& needed = kEverything);

/// DataError if a file of so few bytes cannot hold an image of that size, at `most_pixels` per byte. Without this check, a forged size
/// would cost memory and time.
void expect_room(const std::string& file, std::span<const std::uint8_t> bytes, ImageSize size, std::int64_t most_pixels);

// Implemented in one file each.
ImageSize jpeg_size(const std::string& file, std::span<const std::uint8_t> bytes);
void decode_jpeg(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, const Box& needed, DecodedImage& image);
ImageSize png_size(const std::string& file, std::span<const std::uint8_t> bytes);
void decode_png(const std::string& file, std::span<const std::uint8_t> bytes, DecodedImage& image);

}  // namespace paceline::data
