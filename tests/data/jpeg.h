// Images as JPEG files, for tests that read them.
#pragma once

#ifdef PACELINE_WITH_JPEG

#include <cstdio>  // which jpeglib.h needs
#include <cstdlib>

#include <jpeglib.h>

#include "paceline/data/image_decoder.h"
#include "tests/data/fixtures.h"

namespace paceline::data {

inline Bytes jpeg_of(const DecodedImage& image, J_COLOR_SPACE stored = JCS_YCbCr, bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<unsigned>(image.size.width);
  info.image_height = static_cast<unsigned>(image.size.height);
  const bool inks = stored == JCS_CMYK;
  info.input_components = inks ? 4 : 3;
  info.in_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, stored);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  Bytes row(static_cast<std::size_t>(image.size.width * info.input_components));
  while (info.next_scanline < info.image_height) {
    const std::uint8_t* source = image.rgb.data() + info.next_scanline * static_cast<std::size_t>(image.size.width) * 3;
    for (int x = 0; x < image.size.width; ++x) {
      for (int c = 0; c < 3; ++c)
        row[static_cast<std::size_t>(x * info.input_components + c)] = source[3 * x + c];  // inks upside down, as Adobe does
      if (inks) row[static_cast<std::size_t>(4 * x + 3)] = 255;
    }
    JSAMPROW rows[1] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(buffer, buffer + size);
  std::free(buffer);
  return bytes;
}

}  // namespace paceline::data

#endif
