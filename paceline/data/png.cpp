// PNG through libpng's simplified interface, which converts every kind of PNG to RGB; transparent pixels become black.
#include "paceline/data/image_decoder.h"

#include "paceline/base/error.h"

#ifdef PACELINE_WITH_PNG

#include <png.h>

#include <array>
#include <string_view>

namespace paceline::data {
namespace {

class PngReader {
 public:
  PngReader(const std::string& file, std::span<const std::uint8_t> bytes) : file_(file), bytes_(bytes) {
    image_.version = PNG_IMAGE_VERSION;
    check(png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()));
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // as 8-bit files without a colour space are read; otherwise it assumes linear light
    // The simplified interface stops at the last row; but a file without its end chunk is truncated.
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.rfind(std::string_view("\0\0\0\0IEND\xae\x42\x60\x82", 12)) == std::string_view::npos) {
      png_image_free(&image_);
      throw DataError(file_, "is damaged or cut short: its end is missing");
    }
  }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageSize size() const { return {static_cast<int>(image_.width), static_cast<int>(image_.height)}; }

  void decode(DecodedImage& image) {
    expect_room(file_, bytes_, size(), kDeflate * 8 / bits_of_pixel());
    image.resize(size());
    image_.format = PNG_FORMAT_RGB;
    const png_color black{0, 0, 0};
    check(png_image_finish_read(&image_, &black, image.rgb.data(), 0, nullptr));
  }

 private:
  void check(int done) {
    if (!done) throw DataError(file_, std::string("is damaged or cut short: ") + image_.message);
  }

  /// From the header, which libpng has checked; the simplified interface does not give it.
  std::int64_t bits_of_pixel() const {
    constexpr std::array<int, 7> kChannels = {1, 0, 3, 1, 2, 0, 4};  // by the type of colours
    return std::int64_t{bytes_[24]} * kChannels.at(bytes_[25]);
  }

  static constexpr std::int64_t kDeflate = 1032;  // the highest compression ratio of deflate

  const std::string& file_;
  std::span<const std::uint8_t> bytes_;
  png_image image_{};
};

}  // namespace

ImageSize png_size(const std::string& file, std::span<const std::uint8_t> bytes) { return PngReader(file, bytes).size(); }

void decode_png(const std::string& file, std::span<const std::uint8_t> bytes, DecodedImage& image) { PngReader(file, bytes).decode(image); }

}  // namespace paceline::data

#else

namespace paceline::data {

ImageSize png_size(const std::string& file, std::span<const std::uint8_t>) {
  throw DataError(file, "this build of Paceline cannot read PNG; build it with libpng, or convert the images to JPEG");
}
void decode_png(const std::string& file, std::span<const std::uint8_t> bytes, DecodedImage&) { png_size(file, bytes); }

}  // namespace paceline::data

#endif
