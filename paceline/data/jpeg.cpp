// JPEG. libjpeg reports errors by a call that must not return; we jump out of it and throw from our own frame, because an exception must
// not pass through C code. A warning that means lost data (mostly a truncated file) counts as an error: a half-grey image must not become a
// sample.
//
// If only a part of an image is needed, only the blocks around it are transformed, upsampled and converted to RGB; rows below it are not
// read, so damage there is neither noticed nor harmful. A truncated file is still recognised by its missing end.
#include "paceline/data/image_decoder.h"

#include "paceline/base/error.h"

#ifdef PACELINE_WITH_JPEG

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <string_view>

#include <jpeglib.h>
// After jpeglib.h, which it needs.
#include <jerror.h>

namespace paceline::data {
namespace {

struct ErrorManager {
  jpeg_error_mgr base;  // the first member: libjpeg hands back a pointer to it
  std::jmp_buf escape;
  bool in_image;  // after the header
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void jump_out(j_common_ptr info) {
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  errors->base.format_message(info, errors->message);
  std::longjmp(errors->escape, 1);
}

/// Some encoders pad to a whole word between the image and the end marker.
constexpr int kPadding = 7;

void take_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // a trace, not a warning
  const auto* errors = reinterpret_cast<const ErrorManager*>(info->err);
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: jump_out(info);
    case JWRN_EXTRANEOUS_DATA:  // between the header's markers they cost no pixels; after it, what is left of the image's data was not
                                // decoded
      if (errors->in_image && info->err->msg_parm.i[0] > kPadding) jump_out(info);
      return;
    default: return;  // irregularities that cost no pixels
  }
}

/// Every block of 64 pixels takes at least one bit.
constexpr std::int64_t kPixelsOfByte = 64 * 8;

/// Chroma that is stored at half the width or height is interpolated, but at the border of the decoded part it is repeated instead. Within
/// this distance of the border, pixels may differ from those of the whole image.
constexpr int kBorder = 2;

struct Range {
  int begin, end;
};

/// The pixels of a line of `limit` pixels that [begin, begin + length) touches at this scale, with a border around them.
Range pixels_of(float begin, float length, float scale, int limit) {
  const auto most = static_cast<float>(limit);
  const float first = std::clamp(std::floor(begin * scale) - kBorder, 0.0f, most - 1);
  return {static_cast<int>(first), static_cast<int>(std::clamp(std::ceil((begin + length) * scale) + kBorder, first + 1, most))};
}

class JpegReader {
 public:
  JpegReader(const std::string& file, std::span<const std::uint8_t> bytes) : file_(file), bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = jump_out;
    errors_.base.emit_message = take_message;
    guarded([&] {
      jpeg_create_decompress(&info_);
      jpeg_mem_src(&info_, const_cast<unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
      pixels_at_ = bytes.size() - info_.src->bytes_in_buffer;
    });
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  ImageSize size() const { return {static_cast<int>(info_.image_width), static_cast<int>(info_.image_height)}; }

  void decode(int shrink, const Box& needed, DecodedImage& image) {
    expect_room(file_, bytes_, size(), kPixelsOfByte);
    guarded([&] {
      // libjpeg cannot convert CMYK to RGB.
      const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
      info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
      info_.scale_num = 1;
      info_.scale_denom = static_cast<unsigned>(shrink);
      errors_.in_image = true;
      jpeg_start_decompress(&info_);
      const ImageSize whole{static_cast<int>(info_.output_width), static_cast<int>(info_.output_height)};
      const auto scale = [](int shrunk, unsigned full) { return static_cast<float>(shrunk) / static_cast<float>(full); };
      const Range columns = pixels_of(needed.x, needed.width, scale(whole.width, info_.image_width), whole.width);
      const Range rows = pixels_of(needed.y, needed.height, scale(whole.height, info_.image_height), whole.height);
      auto left = static_cast<JDIMENSION>(columns.begin), width = static_cast<JDIMENSION>(columns.end - columns.begin);
      if (columns.end - columns.begin < whole.width) jpeg_crop_scanline(&info_, &left, &width);  // moves `left` to the border of a block
      if (rows.begin > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(rows.begin));
      image.resize({static_cast<int>(width), rows.end - rows.begin});
      image.whole = whole;
      image.left = static_cast<int>(left);
      image.top = rows.begin;
      inks ? read_rows_of_inks(image) : read_rows(image);
      if (rows.end == whole.height) jpeg_finish_decompress(&info_);  // reads up to the end marker, so that a missing one is noticed
    });
    if (info_.output_scanline < info_.output_height && !has_end()) throw DataError(file_, "is damaged or cut short: its end is missing");
  }

 private:
  /// Runs work(), which must own nothing that needs destruction when libjpeg jumps out of it.
  template <class Work>
  void guarded(Work&& work) {
    if (setjmp(errors_.escape)) {
      jpeg_destroy_decompress(&info_);  // here, since no destructor runs after a constructor has thrown; destroying twice is harmless
      throw DataError(file_, std::string("is damaged or cut short: ") + errors_.message);
    }
    work();
  }

  /// Searched after the header, in which a camera's thumbnail has its own end marker. Anything may follow the end.
  bool has_end() const {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    return text.substr(pixels_at_).rfind("\xff\xd9") != std::string_view::npos;
  }

  void read_rows(DecodedImage& image) {
    const std::size_t row_bytes = 3 * static_cast<std::size_t>(image.size.width);
    JSAMPROW rows[4];  // the decoder makes a few rows at a time
    for (int done = 0; done < image.size.height;) {
      const int wanted = std::min(4, image.size.height - done);
      for (int i = 0; i < wanted; ++i) rows[i] = image.rgb.data() + static_cast<std::size_t>(done + i) * row_bytes;
      done += static_cast<int>(jpeg_read_scanlines(&info_, rows, static_cast<JDIMENSION>(wanted)));
    }
  }

  void read_rows_of_inks(DecodedImage& image) {
    // Adobe stores inverted inks: 255 means no ink. libjpeg's own pool owns the row, so that a jump leaks nothing.
    JSAMPARRAY row = info_.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info_), JPOOL_IMAGE, info_.output_width * 4, 1);
    const int upside_down = info_.saw_Adobe_marker ? 0 : 255;
    std::uint8_t* out = image.rgb.data();
    for (int done = 0; done < image.size.height; ++done) {
      jpeg_read_scanlines(&info_, row, 1);
      for (unsigned x = 0; x < info_.output_width; ++x, out += 3) {
        const std::uint8_t* ink = row[0] + 4 * x;
        for (int c = 0; c < 3; ++c) out[c] = static_cast<std::uint8_t>((ink[c] ^ upside_down) * (ink[3] ^ upside_down) / 255);
      }
    }
  }

  const std::string& file_;
  std::span<const std::uint8_t> bytes_;
  std::size_t pixels_at_ = 0;
  jpeg_decompress_struct info_{};
  ErrorManager errors_{};
};

}  // namespace

ImageSize jpeg_size(const std::string& file, std::span<const std::uint8_t> bytes) { return JpegReader(file, bytes).size(); }

void decode_jpeg(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, const Box& needed, DecodedImage& image) {
  JpegReader(file, bytes).decode(shrink, needed, image);
}

}  // namespace paceline::data

#else

namespace paceline::data {

ImageSize jpeg_size(const std::string& file, std::span<const std::uint8_t>) {
  throw DataError(file, "this build of Paceline cannot read JPEG; build it with libjpeg, or convert the images to PNG");
}
void decode_jpeg(const std::string& file, std::span<const std::uint8_t> bytes, int, const Box&, DecodedImage&) { jpeg_size(file, bytes); }

}  // namespace paceline::data

#endif
