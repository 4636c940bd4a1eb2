// Decoders and the resizer, on pictures that the tests encode themselves.
#include <cmath>
#include <cstdio>

#include "paceline/data/picture.h"
#include "paceline/data/resize.h"
#include "tests/data/jpeg.h"
#include "tests/data/pictures.h"

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
  const Picture picture = slope(16, 16);
  std::vector<float> straight(3 * 16 * 16), mirrored(straight.size());
  Resizer resizer;
  resizer.resize(picture, {0, 0, 16, 16}, 16, false, fractions(), straight.data());
  resizer.resize(picture, {0, 0, 16, 16}, 16, true, fractions(), mirrored.data());
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < 16; ++y)
      for (int x = 0; x < 16; ++x) {
        const std::size_t i = static_cast<std::size_t>((c * 16 + y) * 16 + x);
        EXPECT_NEAR(straight[i], picture.rgb[static_cast<std::size_t>(3 * (y * 16 + x) + c)] / 255.0f, 1e-6);
        EXPECT_EQ(mirrored[i], straight[static_cast<std::size_t>((c * 16 + y) * 16 + 15 - x)]);
      }
}

TEST(Resize, DoublingGivesTheBilinearQuarters) {
  Picture picture = plain(2, 1, 0, 0, 0);
  picture.rgb[3] = 200;
  std::vector<float> out(3 * 4 * 4);
  Resizer().resize(picture, {0, 0, 2, 1}, 4, false, fractions(), out.data());
  const std::vector<float> expected{0, 50, 150, 200};
  for (int x = 0; x < 4; ++x) EXPECT_NEAR(out[static_cast<std::size_t>(x)] * 255, expected[static_cast<std::size_t>(x)], 1e-3);
}

TEST(Resize, ShrinkingCountsEveryPixel) {
  Picture picture = plain(64, 64, 0, 0, 0);
  for (int y = 0; y < 64; ++y)
    for (int x = y % 2; x < 64; x += 2) picture.rgb[static_cast<std::size_t>(3 * (y * 64 + x))] = 255;  // a chequerboard must turn grey
  std::vector<float> out(3 * 8 * 8);
  Resizer().resize(picture, {0, 0, 64, 64}, 8, false, fractions(), out.data());
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(out[static_cast<std::size_t>(i)], 0.5f, 0.02f);
}

TEST(Resize, ABoxIsThatPartOfThePicture) {
  const Picture picture = slope(100, 100);
  std::vector<float> out(3 * 10 * 10);
  Resizer().resize(picture, {40, 20, 20, 20}, 10, false, fractions(), out.data());
  EXPECT_NEAR(out[0], 0.40f, 0.012f);         // red at the left
  EXPECT_NEAR(out[9], 0.58f, 0.012f);         // and at the right
  EXPECT_NEAR(out[100], 0.20f, 0.012f);       // green at the top
  EXPECT_NEAR(out[100 + 90], 0.38f, 0.012f);  // and at the bottom
}

TEST(Picture, WhatIsNeitherJpegNorPngIsRefused) {
  for (const Bytes& bytes : {Bytes{}, Bytes{0xff}, Bytes{'G', 'I', 'F', '8'}, Bytes(100, 0)})
    EXPECT_THAT(message_of<DataError>([&] { picture_size("x.jpg", bytes); }), HasSubstr("x.jpg"));
}

#ifdef PACELINE_WITH_JPEG

void expect_near(const Picture& got, const Picture& expected, int tolerance) {
  ASSERT_EQ(got.size.width, expected.size.width);
  ASSERT_EQ(got.size.height, expected.size.height);
  for (std::size_t i = 0; i < got.rgb.size(); ++i) ASSERT_NEAR(got.rgb[i], expected.rgb[i], tolerance) << i;
}

TEST(Jpeg, EveryColourSpaceBecomesRgb) {
  Picture got;
  const Picture colours = slope(37, 23);
  for (const bool progressive : {false, true}) {
    decode_picture("x", jpeg_of(colours, JCS_YCbCr, progressive), 1, got);
    expect_near(got, colours, 20);
  }
  decode_picture("x", jpeg_of(colours, JCS_CMYK), 1, got);
  expect_near(got, colours, 12);
  const Picture grey = plain(10, 10, 90, 90, 90);
  decode_picture("x", jpeg_of(grey, JCS_GRAYSCALE), 1, got);
  expect_near(got, grey, 2);
}

TEST(Jpeg, ShrinksWhileDecoding) {
  const Bytes bytes = jpeg_of(slope(101, 64));
  EXPECT_EQ(picture_size("x", bytes).width, 101);
  EXPECT_EQ(picture_size("x", bytes).height, 64);
  for (const int shrink : {1, 2, 4, 8}) {
    Picture got;
    decode_picture("x", bytes, shrink, got);
    expect_near(got, slope((101 + shrink - 1) / shrink, 64 / shrink), 24);
  }
}

/// A picture in which every pixel differs from its neighbours.
Picture noise(int width, int height) {
  Picture picture = plain(width, height, 0, 0, 0);
  RandomStream random(9, Purpose::test);
  for (std::uint8_t& value : picture.rgb) value = static_cast<std::uint8_t>(random.next_u32());
  return picture;
}

Box random_box(RandomStream& random, float width, float height) {
  const float x = random.uniform(0, width - 1), y = random.uniform(0, height - 1);
  return {x, y, random.uniform(0.5f, width - x), random.uniform(0.5f, height - y)};
}

TEST(Jpeg, APartIsTheSameAsInTheWhole) {
  RandomStream random(4, Purpose::test);
  const Picture source = noise(149, 117);
  for (const Bytes& bytes : {jpeg_of(source), jpeg_of(source, JCS_YCbCr, true), jpeg_of(source, JCS_RGB), jpeg_of(source, JCS_CMYK)})
    for (const int shrink : {1, 2, 4, 8}) {
      Picture whole, part;
      decode_picture("x", bytes, shrink, whole);
      for (int trial = 0; trial < 40; ++trial) {
        Box box = random_box(random, 149, 117);
        decode_picture("x", bytes, shrink, part, box);
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
  Picture whole, part;
  decode_picture("x", bytes, 1, whole);
  for (int trial = 0; trial < 200; ++trial) {
    const Box box = random_box(random, 149, 117);
    const int size = 1 + static_cast<int>(random.below(60));
    const bool flip = random.below(2) == 1;
    std::vector<float> expected(static_cast<std::size_t>(3 * size * size)), got(expected.size());
    decode_picture("x", bytes, 1, part, Resizer::needed(box, size));
    Resizer().resize(whole, box, size, flip, fractions(), expected.data());
    Resizer().resize(part, box, size, flip, fractions(), got.data());
    ASSERT_EQ(got, expected);
  }
}

TEST(Jpeg, ACutFileIsRefusedAtEveryLength) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = jpeg_of(slope(64, 48), JCS_YCbCr, progressive);
    Picture got;
    for (const Box& box : {kEverything, Box{20, 0, 20, 10}})  // all of it, or a part far above the cut
      for (std::size_t length = 0; length < whole.size(); ++length)
        EXPECT_THAT(message_of<DataError>([&] { decode_picture("cut.jpg", first(whole, length), 1, got, box); }), HasSubstr("cut.jpg"))
            << length;
  }
}

TEST(Jpeg, TheEndOfACamerasSmallCopyIsNotThePicturesEnd) {
  const Bytes small = jpeg_of(slope(16, 12)), plain = jpeg_of(slope(64, 48));
  Bytes segment = {0xff, 0xe1, 0, 0, 'E', 'x', 'i', 'f', 0, 0};
  segment.insert(segment.end(), small.begin(), small.end());
  segment[2] = static_cast<std::uint8_t>((segment.size() - 2) >> 8);
  segment[3] = static_cast<std::uint8_t>(segment.size() - 2);
  Bytes whole = plain;
  whole.insert(whole.begin() + 2, segment.begin(), segment.end());
  const Box top{20, 0, 20, 10};  // far above the cuts
  Picture got;
  for (const std::size_t left_out : {std::size_t{1}, std::size_t{2}, plain.size() / 8})
    EXPECT_THAT(message_of<DataError>([&] { decode_picture("cut.jpg", first(whole, whole.size() - left_out), 1, got, top); }),
                HasSubstr("cut.jpg: is damaged or cut short"))
        << left_out;
  whole.resize(whole.size() + 100);  // what phones append costs no pixels
  decode_picture("whole.jpg", whole, 1, got, top);
}

TEST(Jpeg, DataThatIsLeftOverMeansDamage) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = jpeg_of(slope(64, 48), JCS_YCbCr, progressive);
    Picture got;
    const auto with = [&](std::size_t left_over) {  // before the end marker
      Bytes damaged = whole;
      damaged.insert(damaged.end() - 2, left_over, 0);
      return damaged;
    };
    decode_picture("padded.jpg", with(3), 1, got);
    EXPECT_THAT(message_of<DataError>([&] { decode_picture("bad.jpg", with(300), 1, got); }), HasSubstr("bad.jpg: is damaged"));
    Bytes commented = whole;
    commented.insert(commented.begin() + 4 + 256 * whole[4] + whole[5], 300, 0);  // behind the first segment they cost no pixels
    decode_picture("odd.jpg", commented, 1, got);
  }
}

TEST(Jpeg, DamagedBytesNeverCrash) {
  const Bytes whole = jpeg_of(slope(64, 48));
  RandomStream random(3, Purpose::test);
  Picture got;
  for (int trial = 0; trial < 2000; ++trial) {
    Bytes damaged = whole;
    for (int i = 0; i < 3; ++i) damaged[random.below(damaged.size())] = static_cast<std::uint8_t>(random.next_u32());
    try {
      decode_picture("damaged.jpg", damaged, 1 << random.below(4), got, random.below(2) == 0 ? kEverything : random_box(random, 64, 48));
    } catch (const DataError&) {
    }
  }
}

#endif
#ifdef PACELINE_WITH_PNG

TEST(Png, IsWithoutLoss) {
  const Picture picture = slope(37, 23);
  Picture got;
  decode_picture("x", png_of(picture), 8, got);
  EXPECT_EQ(got.rgb, picture.rgb);
  EXPECT_EQ(got.size.width, 37);
}

/// With 16 bits a colour, and without a word on what they mean.
Bytes deep_png_of(const Picture& picture) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes bytes;
  const auto append = [](png_structp writer, png_bytep data, std::size_t count) {
    auto& all = *static_cast<Bytes*>(png_get_io_ptr(writer));
    all.insert(all.end(), data, data + count);
  };
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, static_cast<unsigned>(picture.size.width), static_cast<unsigned>(picture.size.height), 16, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  Bytes row;
  for (auto value = picture.rgb.begin(); value != picture.rgb.end();) {
    row.clear();
    for (int i = 0; i < 3 * picture.size.width; ++i, ++value) row.insert(row.end(), 2, *value);
    png_write_row(png, row.data());
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

TEST(Png, IsAsBrightWithSixteenBits) {
  const Picture picture = slope(37, 23);
  Picture got;
  decode_picture("x", deep_png_of(picture), 8, got);
  EXPECT_EQ(got.rgb, picture.rgb);
}

TEST(Png, ACutFileIsRefusedAtEveryLength) {
  const Bytes whole = png_of(slope(37, 23));
  Picture got;
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(message_of<DataError>([&] { decode_picture("cut.png", first(whole, length), 1, got); }), HasSubstr("cut.png")) << length;
}

TEST(Png, ADamagedByteIsNoticedOrHarmless) {
  const Picture picture = slope(37, 23);
  const Bytes whole = png_of(picture);
  Picture got;
  std::size_t noticed = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes damaged = whole;
    damaged[i] ^= 0x41;
    try {
      decode_picture("damaged.png", damaged, 1, got);
      EXPECT_EQ(got.rgb, picture.rgb) << i;  // a chunk that holds no pixels
    } catch (const DataError&) {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, whole.size() * 9 / 10);
}

#endif

}  // namespace
}  // namespace paceline::data
