// Decoders and the resizer, on images that the tests encode themselves.
#include <cmath>
#include <cstdio>

#include "paceline/data/image_decoder.h"
#include "paceline/data/resize.h"
#include "tests/data/images.h"
#include "tests/data/jpeg.h"

namespace paceline::data {
namespace {

using testing::AllOf, testing::HasSubstr;

Normalisation fractions() {
  return Normalisation({.key = "", .input = {}, .classes = 0, .tokens = false, .mean = {0, 0, 0}, .deviation = {1, 1, 1}});
}

TEST(Resize, AConstantStaysConstantAtAnySize) {
  const std::vector<float> colour{0.2f, 0.4f, 0.8f};
  Resizer resizer;
  for (const auto& [width, height] : {std::pair{1, 1}, {3, 2}, {50, 33}, {400, 7}})
    for (const int size : {1, 5, 32}) {
      std::vector<float> out(static_cast<std::size_t>(3 * size * size));
      resizer.resize(plain(width, height, 51, 102, 204), {0, 0, static_cast<float>(width), static_cast<float>(height)}, size, false,
                     fractions(), out.data());
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], colour[i / static_cast<std::size_t>(size * size)], 1e-5);
    }
}

TEST(Resize, TheSameSizeIsACopyAndFlipMirrorsIt) {
  const DecodedImage image = slope(16, 16);
  std::vector<float> straight(3 * 16 * 16), mirrored(straight.size());
  Resizer resizer;
  resizer.resize(image, {0, 0, 16, 16}, 16, false, fractions(), straight.data());
  resizer.resize(image, {0, 0, 16, 16}, 16, true, fractions(), mirrored.data());
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < 16; ++y)
      for (int x = 0; x < 16; ++x) {
        const std::size_t i = static_cast<std::size_t>((c * 16 + y) * 16 + x);
        EXPECT_NEAR(straight[i], image.rgb[static_cast<std::size_t>(3 * (y * 16 + x) + c)] / 255.0f, 1e-6);
        EXPECT_EQ(mirrored[i], straight[static_cast<std::size_t>((c * 16 + y) * 16 + 15 - x)]);
      }
}

TEST(Resize, DoublingGivesTheBilinearQuarters) {
  DecodedImage image = plain(2, 1, 0, 0, 0);
  image.rgb[3] = 200;
  std::vector<float> out(3 * 4 * 4);
  Resizer().resize(image, {0, 0, 2, 1}, 4, false, fractions(), out.data());
  const std::vector<float> expected{0, 50, 150, 200};
  for (int x = 0; x < 4; ++x) EXPECT_NEAR(out[static_cast<std::size_t>(x)] * 255, expected[static_cast<std::size_t>(x)], 1e-3);
}

TEST(Resize, ShrinkingCountsEveryPixel) {
  DecodedImage image = plain(64, 64, 0, 0, 0);
  for (int y = 0; y < 64; ++y)
    for (int x = y % 2; x < 64; x += 2) image.rgb[static_cast<std::size_t>(3 * (y * 64 + x))] = 255;  // a chequerboard must turn grey
  std::vector<float> out(3 * 8 * 8);
  Resizer().resize(image, {0, 0, 64, 64}, 8, false, fractions(), out.data());
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(out[static_cast<std::size_t>(i)], 0.5f, 0.02f);
}

TEST(Resize, ABoxIsThatPartOfTheImage) {
  const DecodedImage image = slope(100, 100);
  std::vector<float> out(3 * 10 * 10);
  Resizer().resize(image, {40, 20, 20, 20}, 10, false, fractions(), out.data());
  EXPECT_NEAR(out[0], 0.40f, 0.012f);         // red at the left
  EXPECT_NEAR(out[9], 0.58f, 0.012f);         // and at the right
  EXPECT_NEAR(out[100], 0.20f, 0.012f);       // green at the top
  EXPECT_NEAR(out[100 + 90], 0.38f, 0.012f);  // and at the bottom
}

TEST(Image, WhatIsNeitherJpegNorPngIsRefused) {
  for (const Bytes& bytes : {Bytes{}, Bytes{0xff}, Bytes{'G', 'I', 'F', '8'}, Bytes(100, 0)})
    EXPECT_THAT(message_of<DataError>([&] { image_size("x.jpg", bytes); }), HasSubstr("x.jpg"));
}

#ifdef PACELINE_WITH_JPEG

void expect_near(const DecodedImage& got, const DecodedImage& expected, int tolerance) {
  ASSERT_EQ(got.size.width, expected.size.width);
  ASSERT_EQ(got.size.height, expected.size.height);
  for (std::size_t i = 0; i < got.rgb.size(); ++i) ASSERT_NEAR(got.rgb[i], expected.rgb[i], tolerance) << i;
}

TEST(Jpeg, EveryColourSpaceBecomesRgb) {
  DecodedImage got;
  const DecodedImage colours = slope(37, 23);
  for (const bool progressive : {false, true}) {
    decode_image("x", jpeg_of(colours, JCS_YCbCr, progressive), 1, got);
    expect_near(got, colours, 20);
  }
  decode_image("x", jpeg_of(colours, JCS_CMYK), 1, got);
  expect_near(got, colours, 12);
  const DecodedImage grey = plain(10, 10, 90, 90, 90);
  decode_image("x", jpeg_of(grey, JCS_GRAYSCALE), 1, got);
  expect_near(got, grey, 2);
}

TEST(Jpeg, ShrinksWhileDecoding) {
  const Bytes bytes = jpeg_of(slope(101, 64));
  EXPECT_EQ(image_size("x", bytes).width, 101);
  EXPECT_EQ(image_size("x", bytes).height, 64);
  for (const int shrink : {1, 2, 4, 8}) {
    DecodedImage got;
    decode_image("x", bytes, shrink, got);
    expect_near(got, slope((101 + shrink - 1) / shrink, 64 / shrink), 24);
  }
}

/// A image in which every pixel differs from its neighbours.
DecodedImage noise(int width, int height) {
  DecodedImage image = plain(width, height, 0, 0, 0);
  RandomStream random(9, Purpose::test);
  for (std::uint8_t& value : image.rgb) value = static_cast<std::uint8_t>(random.next_u32());
  return image;
}

Box random_box(RandomStream& random, float width, float height) {
  const float x = random.uniform(0, width - 1), y = random.uniform(0, height - 1);
  return {x, y, random.uniform(0.5f, width - x), random.uniform(0.5f, height - y)};
}

TEST(Jpeg, APartIsTheSameAsInTheWhole) {
  RandomStream random(4, Purpose::test);
  const DecodedImage source = noise(149, 117);
  for (const Bytes& bytes : {jpeg_of(source), jpeg_of(source, JCS_YCbCr, true), jpeg_of(source, JCS_RGB), jpeg_of(source, JCS_CMYK)})
    for (const int shrink : {1, 2, 4, 8}) {
      DecodedImage whole, part;
      decode_image("x", bytes, shrink, whole);
      for (int trial = 0; trial < 40; ++trial) {
        Box box = random_box(random, 149, 117);
        decode_image("x", bytes, shrink, part, box);
        ASSERT_EQ(part.whole.width, whole.size.width);
        ASSERT_EQ(part.whole.height, whole.size.height);
        // The pixels that the box touches; the border around them is interpolated differently.
        const float scale_x = whole.size.width / 149.0f, scale_y = whole.size.height / 117.0f;
        box = {box.x * scale_x, box.y * scale_y, box.width * scale_x, box.height * scale_y};
        for (int y = static_cast<int>(box.y); y < std::ceil(box.y + box.height); ++y)
          for (int x = static_cast<int>(box.x); x < std::ceil(box.x + box.width); ++x) {
            ASSERT_TRUE(x >= part.left && x < part.left + part.size.width && y >= part.top && y < part.top + part.size.height);
            for (int c = 0; c < 3; ++c)
              ASSERT_EQ(part.rgb[static_cast<std::size_t>(3 * ((y - part.top) * part.size.width + x - part.left) + c)],
                        whole.rgb[static_cast<std::size_t>(3 * (y * whole.size.width + x) + c)])
                  << x << ", " << y << " at 1/" << shrink;
          }
      }
    }
}

TEST(Jpeg, WhatIsResizedDoesNotDependOnWhatIsDecodedBesideIt) {
  RandomStream random(5, Purpose::test);
  const Bytes bytes = jpeg_of(noise(149, 117));
  DecodedImage whole, part;
  decode_image("x", bytes, 1, whole);
  for (int trial = 0; trial < 200; ++trial) {
    const Box box = random_box(random, 149, 117);
    const int size = 1 + static_cast<int>(random.below(60));
    const bool flip = random.below(2) == 1;
    std::vector<float> expected(static_cast<std::size_t>(3 * size * size)), got(expected.size());
    decode_image("x", bytes, 1, part, Resizer::needed(box, size));
    Resizer().resize(whole, box, size, flip, fractions(), expected.data());
    Resizer().resize(part, box, size, flip, fractions(), got.data());
    ASSERT_EQ(got, expected);
  }
}

TEST(Jpeg, ACutFileIsRefusedAtEveryLength) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = jpeg_of(slope(64, 48), JCS_YCbCr, progressive);
    DecodedImage got;
    for (const Box& box : {kEverything, Box{20, 0, 20, 10}})  // all of it, or a part far above the cut
      for (std::size_t length = 0; length < whole.size(); ++length)
        EXPECT_THAT(message_of<DataError>([&] { decode_image("cut.jpg", first(whole, length), 1, got, box); }), HasSubstr("cut.jpg"))
            << length;
  }
}

TEST(Jpeg, TheEndOfACamerasSmallCopyIsNotTheImagesEnd) {
  const Bytes small = jpeg_of(slope(16, 12)), plain = jpeg_of(slope(64, 48));
  Bytes segment = {0xff, 0xe1, 0, 0, 'E', 'x', 'i', 'f', 0, 0};
  segment.insert(segment.end(), small.begin(), small.end());
  segment[2] = static_cast<std::uint8_t>((segment.size() - 2) >> 8);
  segment[3] = static_cast<std::uint8_t>(segment.size() - 2);
  Bytes whole = plain;
  whole.insert(whole.begin() + 2, segment.begin(), segment.end());
  const Box top{20, 0, 20, 10};  // far above the cuts
  DecodedImage got;
  for (const std::size_t left_out : {std::size_t{1}, std::size_t{2}, plain.size() / 8})
    EXPECT_THAT(message_of<DataError>([&] { decode_image("cut.jpg", first(whole, whole.size() - left_out), 1, got, top); }),
                HasSubstr("cut.jpg: is damaged or cut short"))
        << left_out;
  whole.resize(whole.size() + 100);  // what phones append costs no pixels
  decode_image("whole.jpg", whole, 1, got, top);
}

TEST(Jpeg, DataThatIsLeftOverMeansDamage) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = jpeg_of(slope(64, 48), JCS_YCbCr, progressive);
    DecodedImage got;
    const auto with = [&](std::size_t left_over) {  // before the end marker
      Bytes damaged = whole;
      damaged.insert(damaged.end() - 2, left_over, 0);
      return damaged;
    };
    decode_image("padded.jpg", with(3), 1, got);
    EXPECT_THAT(message_of<DataError>([&] { decode_image("bad.jpg", with(300), 1, got); }), HasSubstr("bad.jpg: is damaged"));
    Bytes commented = whole;
    commented.insert(commented.begin() + 4 + 256 * whole[4] + whole[5], 300, 0);  // behind the first segment they cost no pixels
    decode_image("odd.jpg", commented, 1, got);
  }
}

TEST(Jpeg, DamagedBytesNeverCrash) {
  const Bytes whole = jpeg_of(slope(64, 48));
  RandomStream random(3, Purpose::test);
  DecodedImage got;
  for (int trial = 0; trial < 2000; ++trial) {
    Bytes damaged = whole;
    for (int i = 0; i < 3; ++i) damaged[random.below(damaged.size())] = static_cast<std::uint8_t>(random.next_u32());
    try {
      decode_image("damaged.jpg", damaged, 1 << random.below(4), got, random.below(2) == 0 ? kEverything : random_box(random, 64, 48));
    } catch (const DataError&) {
    }
  }
}

#endif
#ifdef PACELINE_WITH_PNG

TEST(Png, IsWithoutLoss) {
  const DecodedImage image = slope(37, 23);
  DecodedImage got;
  decode_image("x", png_of(image), 8, got);
  EXPECT_EQ(got.rgb, image.rgb);
  EXPECT_EQ(got.size.width, 37);
}

/// With 16 bits a colour, and without a word on what they mean.
Bytes deep_png_of(const DecodedImage& image) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes bytes;
  const auto append = [](png_structp writer, png_bytep data, std::size_t count) {
    auto& all = *static_cast<Bytes*>(png_get_io_ptr(writer));
    all.insert(all.end(), data, data + count);
  };
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, static_cast<unsigned>(image.size.width), static_cast<unsigned>(image.size.height), 16, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  Bytes row;
  for (auto value = image.rgb.begin(); value != image.rgb.end();) {
    row.clear();
    for (int i = 0; i < 3 * image.size.width; ++i, ++value) row.insert(row.end(), 2, *value);
    png_write_row(png, row.data());
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

TEST(Png, IsAsBrightWithSixteenBits) {
  const DecodedImage image = slope(37, 23);
  DecodedImage got;
  decode_image("x", deep_png_of(image), 8, got);
  EXPECT_EQ(got.rgb, image.rgb);
}

TEST(Png, ACutFileIsRefusedAtEveryLength) {
  const Bytes whole = png_of(slope(37, 23));
  DecodedImage got;
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(message_of<DataError>([&] { decode_image("cut.png", first(whole, length), 1, got); }), HasSubstr("cut.png")) << length;
}

TEST(Png, ADamagedByteIsNoticedOrHarmless) {
  const DecodedImage image = slope(37, 23);
  const Bytes whole = png_of(image);
  DecodedImage got;
  std::size_t noticed = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes damaged = whole;
    damaged[i] ^= 0x41;
    try {
      decode_image("damaged.png", damaged, 1, got);
      EXPECT_EQ(got.rgb, image.rgb) << i;  // a chunk that holds no pixels
    } catch (const DataError&) {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, whole.size() * 9 / 10);
}

#endif

}  // namespace
}  // namespace paceline::data
