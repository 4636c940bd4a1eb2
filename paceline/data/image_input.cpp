#include "paceline/data/image_input.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/data/dataset_files.h"
#include "paceline/data/resize.h"

namespace paceline::data {
namespace {

/// The largest power of two by which an image may be reduced while the box still has a pixel for every output pixel.
int shrink_for(const Box& box, std::int64_t side) {
  int shrink = 1;
  while (shrink < 8 && std::min(box.width, box.height) >= static_cast<float>(2 * shrink * side)) shrink *= 2;
  return shrink;
}

/// As much of an image as of the dataset's own; of a user's dataset all.
float middle_share_of(const std::string& dataset) {
  for (const auto& row : datasets())
    if (row.key == dataset) return row.make.middle_share;
  return 1;
}

}  // namespace

Box middle_box(ImageSize size, float share) {
  const float side = static_cast<float>(std::min(size.width, size.height)) * share;
  return {(static_cast<float>(size.width) - side) / 2, (static_cast<float>(size.height) - side) / 2, side, side};
}

void resize_box(const std::string& file, std::span<const std::uint8_t> bytes, ImageSize size, Box box, std::int64_t side, bool flip,
                const Normalisation& normalisation, float* out) {
  static thread_local struct {
    DecodedImage image;
    Resizer resizer;
  } work;
  decode_image(file, bytes, shrink_for(box, side), work.image, Resizer::needed(box, static_cast<int>(side)));
  const float shrunk_x = static_cast<float>(work.image.whole.width) / static_cast<float>(size.width);
  const float shrunk_y = static_cast<float>(work.image.whole.height) / static_cast<float>(size.height);
  box = {box.x * shrunk_x, box.y * shrunk_y, box.width * shrunk_x, box.height * shrunk_y};
  work.resizer.resize(work.image, box, static_cast<int>(side), flip, normalisation, out);
}

void read_as_input(const std::string& file, const Info& info, float* out) {
  const auto& shape = info.input;
  if (info.tokens || shape.size() != 3 || shape[1] != shape[2] || (shape[0] != 1 && shape[0] != 3))
    throw ConfigError(
        fmt::format("'{}' has samples of shape [{}], to which an image cannot be converted; expected 1 or 3 channels and a square",
                    info.key, fmt::join(shape, ", ")));
  const std::string content = read_file(file);
  const ImageSize size = image_size(file, bytes_of(content));
  const Box box = middle_box(size, middle_share_of(info.key));
  if (shape[0] == 3) return resize_box(file, bytes_of(content), size, box, shape[1], false, Normalisation(info), out);

  // Grey: the luma of JPEG, normalised afterwards.
  Info plain = info;
  plain.mean.assign(3, 0), plain.deviation.assign(3, 1);  // 0 … 1
  const std::int64_t pixels = shape[1] * shape[2];
  std::vector<float> rgb(static_cast<std::size_t>(3 * pixels));
  resize_box(file, bytes_of(content), size, box, shape[1], false, Normalisation(plain), rgb.data());
  for (std::int64_t i = 0; i < pixels; ++i) {
    const float grey = 0.299f * rgb[static_cast<std::size_t>(i)] + 0.587f * rgb[static_cast<std::size_t>(i + pixels)] +
                       0.114f * rgb[static_cast<std::size_t>(i + 2 * pixels)];
    out[i] = (grey - info.mean[0]) / info.deviation[0];
  }
}

}  // namespace paceline::data
