// JPEG. libjpeg reports errors by a call that must not return; we jump out of it and throw from our own frame, because an exception must
// not pass through C code. A warning that means lost data (a file cut short above all) counts as an error: half a grey picture is no
// sample.
#include "paceline/data/picture.h"

#include "paceline/base/error.h"

#ifdef PACELINE_WITH_JPEG

#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
// Behind jpeglib.h, which it needs.
#include <jerror.h>

namespace paceline::data {
namespace {

struct ErrorManager {
  jpeg_error_mgr base;  // the first member: libjpeg hands back a pointer to it
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void jump_out(j_common_ptr info) {
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  errors->base.format_message(info, errors->message);
  std::longjmp(errors->escape, 1);
}

void take_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // a trace, not a warning
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: jump_out(info);
    default: return;  // oddities that cost no pixels, such as bytes between markers
  }
}

class JpegReader {
 public:
  JpegReader(const std::string& file, std::span<const std::uint8_t> bytes) : file_(file) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = jump_out;
    errors_.base.emit_message = take_message;
    guarded([&] {
      jpeg_create_decompress(&info_);
      jpeg_mem_src(&info_, const_cast<unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  PictureSize size() const { return {static_cast<int>(info_.image_width), static_cast<int>(info_.image_height)}; }

  void decode(int shrink, Picture& picture) {
    guarded([&] {
      // libjpeg knows no way from the inks of print to RGB.
      const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
      info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
      info_.scale_num = 1;
      info_.scale_denom = static_cast<unsigned>(shrink);
      jpeg_start_decompress(&info_);
      picture.resize({static_cast<int>(info_.output_width), static_cast<int>(info_.output_height)});
      inks ? read_rows_of_inks(picture) : read_rows(picture.rgb.data());
      jpeg_finish_decompress(&info_);  // reads on to the end marker, so that a missing one is seen
    });
  }

 private:
  /// Runs work(), which must own nothing that needs destruction when libjpeg jumps out of it.
  template <class Work>
  void guarded(Work&& work) {
    if (setjmp(errors_.escape)) {
      jpeg_destroy_decompress(&info_);  // here, since a constructor that throws has no destructor; a second time does no harm
      throw DataError(file_, std::string("is damaged or cut short: ") + errors_.message);
    }
    work();
  }

  void read_rows(std::uint8_t* out) {
    const std::size_t row_bytes = std::size_t{info_.output_width} * 3;
    JSAMPROW rows[4];  // the decoder makes a few rows at a time
    while (info_.output_scanline < info_.output_height) {
      for (std::size_t i = 0; i < 4; ++i)
        rows[i] = out + std::min<std::size_t>(info_.output_scanline + i, info_.output_height - 1) * row_bytes;
      jpeg_read_scanlines(&info_, rows, 4);
    }
  }

  void read_rows_of_inks(Picture& picture) {
    // Adobe stores inks upside down: 255 is no ink. libjpeg's own pool owns the row, so that a jump leaks nothing.
    JSAMPARRAY row = info_.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info_), JPOOL_IMAGE, info_.output_width * 4, 1);
    const int upside_down = info_.saw_Adobe_marker ? 0 : 255;
    std::uint8_t* out = picture.rgb.data();
    while (info_.output_scanline < info_.output_height) {
      jpeg_read_scanlines(&info_, row, 1);
      for (unsigned x = 0; x < info_.output_width; ++x, out += 3) {
        const std::uint8_t* ink = row[0] + 4 * x;
        for (int c = 0; c < 3; ++c) out[c] = static_cast<std::uint8_t>((ink[c] ^ upside_down) * (ink[3] ^ upside_down) / 255);
      }
    }
  }

  const std::string& file_;
  jpeg_decompress_struct info_{};
  ErrorManager errors_{};
};

}  // namespace

PictureSize jpeg_size(const std::string& file, std::span<const std::uint8_t> bytes) { return JpegReader(file, bytes).size(); }

void decode_jpeg(const std::string& file, std::span<const std::uint8_t> bytes, int shrink, Picture& picture) {
  JpegReader(file, bytes).decode(shrink, picture);
}

}  // namespace paceline::data

#else

namespace paceline::data {

PictureSize jpeg_size(const std::string& file, std::span<const std::uint8_t>) {
  throw DataError(file, "this build of Paceline reads no JPEG; build it with libjpeg, or convert the pictures to PNG");
}
void decode_jpeg(const std::string& file, std::span<const std::uint8_t> bytes, int, Picture&) { jpeg_size(file, bytes); }

}  // namespace paceline::data

#endif
