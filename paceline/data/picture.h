// Compressed pictures: JPEG through libjpeg, PNG through libpng, told apart by their first bytes and not by their names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline::data {

struct PictureSize {
  int width = 0, height = 0;
};

/// Rows of RGB bytes. The buffer is used again from picture to picture.
struct Picture {
  PictureSize size;
  std::vector<std::uint8_t> rgb;
  void resize(PictureSize to);  // throws std::length_error beyond 2^30 bytes
};

/// `file` is for the messages. All of these throw DataError for a picture that is damaged, cut short, or of a kind that was not compiled
/// in.
PictureSize picture_size(const std::string& file, std::span<const std::uint8_t> bytes);

/// Decodes a picture, which may come out smaller by 1/2, …, 1/shrink (shrink is 1, 2, 4 or 8): a JPEG decoder saves most of its work so.
void decode_picture(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, Picture& picture);

// One file each.
PictureSize jpeg_size(const std::string& file, std::span<const std::uint8_t> bytes);
void decode_jpeg(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, Picture& picture);
PictureSize png_size(const std::string& file, std::span<const std::uint8_t> bytes);
void decode_png(const std::string& file, std::span<const std::uint8_t> bytes, Picture& picture);

}  // namespace paceline::data
