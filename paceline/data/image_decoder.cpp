#include "paceline/data/image_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paceline/base/error.h"

namespace paceline::data {
namespace {

constexpr std::array<std::uint8_t, 3> kJpeg{0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPng{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool begins_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> signature) {
  return bytes.size() >= signature.size() && std::equal(signature.begin(), signature.end(), bytes.begin());
}

bool is_jpeg(const std::string& file, std::span<const std::uint8_t> bytes) {
  if (begins_with(bytes, kJpeg)) return true;
  if (begins_with(bytes, kPng)) return false;
  throw DataError(file, 0, bytes.empty() ? "is empty" : "is neither a JPEG nor a PNG image");
}

}  // namespace

void DecodedImage::resize(ImageSize to) {
  const std::size_t bytes = 3 * static_cast<std::size_t>(to.width) * static_cast<std::size_t>(to.height);
  if (bytes > std::size_t{1} << 30) throw std::length_error("image");
  size = whole = to;
  left = top = 0;
  rgb.resize(bytes);
}

void expect_room(const std::string& file, std::span<const std::uint8_t> bytes, ImageSize size, std::int64_t most_pixels) {
  if (std::int64_t{size.width} * size.height <= std::ssize(bytes) * most_pixels) return;
  throw DataError(file, fmt::format("its header says {}×{} pixels, which {} bytes cannot hold; the file is damaged", size.width,
                                    size.height, bytes.size()));
}

ImageSize image_size(const std::string& file, std::span<const std::uint8_t> bytes) {
  return is_jpeg(file, bytes) ? jpeg_size(file, bytes) : png_size(file, bytes);
}

void decode_image(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, DecodedImage& image, const Box& needed) {
  try {
    is_jpeg(file, bytes) ? decode_jpeg(file, bytes, shrink, needed, image) : decode_png(file, bytes, image);
  } catch (const std::length_error&) {
    throw DataError(file, "has more than a gigabyte of pixels; make it smaller");
  }
}

}  // namespace paceline::data
