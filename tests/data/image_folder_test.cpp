// Image folders, decoders and the resizer, on pictures that the tests encode themselves.
#include <cmath>
#include <cstdio>

#include "paceline/data/picture.h"
#include "paceline/data/resize.h"
#include "tests/data/fixtures.h"
#include "tests/data/jpeg.h"

#ifdef PACELINE_WITH_PNG
#include <png.h>
#endif

namespace paceline::data {
namespace {

using testing::AllOf, testing::HasSubstr;

Picture plain(int width, int height, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  Picture picture;
  picture.resize({width, height});
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) picture.rgb[i] = red, picture.rgb[i + 1] = green, picture.rgb[i + 2] = blue;
  return picture;
}

/// Red grows to the right and green downwards.
Picture slope(int width, int height) {
  Picture picture = plain(width, height, 0, 0, 100);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::uint8_t* pixel = picture.rgb.data() + 3 * (y * width + x);
      pixel[0] = static_cast<std::uint8_t>(255 * x / width);
      pixel[1] = static_cast<std::uint8_t>(255 * y / height);
    }
  return picture;
}

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

Bytes png_of(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<unsigned>(picture.size.width);
  image.height = static_cast<unsigned>(picture.size.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, picture.rgb.data(), 0, nullptr);
  Bytes bytes(size);
  png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.rgb.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

TEST(Png, IsWithoutLoss) {
  const Picture picture = slope(37, 23);
  Picture got;
  decode_picture("x", png_of(picture), 8, got);
  EXPECT_EQ(got.rgb, picture.rgb);
  EXPECT_EQ(got.size.width, 37);
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

class ImageFolder : public testing::Test {
 protected:
  ImageFolder() {
    for (int i = 0; i < 3; ++i) folder_.write("train/cat/" + std::to_string(i) + ".png", png_of(plain(40, 30, 200, 0, 0)));
    for (int i = 0; i < 2; ++i) folder_.write("train/dog/" + std::to_string(i) + ".PNG", png_of(slope(64, 64)));
    folder_.write("train/dog/notes.txt", {'x'});
    folder_.write("val/dog/a.png", png_of(plain(8, 8, 0, 200, 0)));
    config_ = config_of("image_folder", folder_.path());
    config_.image_size = 16;
    config_.normalise = false;
  }
  std::unique_ptr<Dataset> open(Split split = Split::train) const { return make_dataset(config_, split, 0); }

  Folder folder_;
  DataConfig config_;
};

TEST_F(ImageFolder, FoldersAreClassesAndSamplesAlternateBetweenThem) {
  const auto train = open(), test = open(Split::test);
  EXPECT_EQ(train->info().classes, 2);
  EXPECT_EQ(train->info().input, (std::vector<std::int64_t>{3, 16, 16}));
  ASSERT_EQ(train->size(), 5);
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 5; ++i) labels.push_back(sample(*train, i).targets[0]);
  EXPECT_THAT(labels, testing::ElementsAre(0, 1, 0, 1, 0));
  ASSERT_EQ(test->size(), 1);
  const Batch dog = sample(*test, 0);
  EXPECT_EQ(dog.targets[0], 1) << "the classes are those of train";
  EXPECT_NEAR(dog.inputs[16 * 16], 200 / 255.0, 1e-5);
  EXPECT_FALSE(train->pixels().has_value());
}

TEST_F(ImageFolder, WithoutChanceTheMiddleIsTaken) {
  const Batch batch = sample(*open(), 1);  // a slope of 64, of which the middle 56
  EXPECT_NEAR(batch.inputs[0], 4.0 / 64 + 1.25 / 64, 0.02);
  EXPECT_NEAR(batch.inputs[15], 60.0 / 64 - 2.25 / 64, 0.02);
}

TEST_F(ImageFolder, RandomBoxesStayInsideAndRepeat) {
  const auto set = open();
  float least = 1, most = 0;
  bool mirrored = false, straight = false;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    RandomStream one(1, Purpose::augment, 1, epoch), two(1, Purpose::augment, 1, epoch);
    const Batch batch = sample(*set, 1, &one);
    ASSERT_EQ(batch.inputs, sample(*set, 1, &two).inputs);
    const auto red = std::span(batch.inputs).first(16 * 16);
    for (float value : red) ASSERT_TRUE(value >= 0 && value <= 1);
    least = std::min(least, std::ranges::min(red));
    most = std::max(most, std::ranges::max(red));
    (red[0] > red[15] ? mirrored : straight) = true;
  }
  EXPECT_LT(least, 0.05f);
  EXPECT_GT(most, 0.93f);
  EXPECT_TRUE(mirrored && straight);
}

TEST_F(ImageFolder, ExtremeRatiosAndCutoutWork) {
  folder_.write("train/cat/0.png", png_of(plain(300, 2, 200, 0, 0)));
  config_.cutout = 6;
  config_.normalise = true;
  const auto set = open();
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    RandomStream random(1, Purpose::augment, 0, epoch);
    const Batch batch = sample(*set, 0, &random);
    const auto blank = std::ranges::count(batch.inputs, 0.0f);
    EXPECT_GE(blank, 3 * 3 * 3);
    EXPECT_LE(blank, 3 * 6 * 6);
  }
}

TEST_F(ImageFolder, WhatIsWrongIsNamed) {
  folder_.write("train/cat/1.png", {'n', 'o'});
  EXPECT_THAT(message_of<DataError>([&] { sample(*open(), 2); }), HasSubstr("train/cat/1.png"));

  for (const char* link : {"train/cat/99.png", "train/bird"}) {  // a picture, and a class
    std::filesystem::create_symlink("gone", folder_ / link);
    EXPECT_THAT(message_of<DataError>([&] { open(); }), AllOf(HasSubstr(link), HasSubstr("links to gone")));
    std::filesystem::remove(folder_ / link);
  }
  std::filesystem::create_directory(folder_ / "train/cat/99.jpg");
  EXPECT_THAT(message_of<DataError>([&] { open(); }), AllOf(HasSubstr("train/cat/99.jpg"), HasSubstr("not a file")));
  std::filesystem::remove(folder_ / "train/cat/99.jpg");

  std::filesystem::create_directory(folder_ / "val/bird");
  EXPECT_THAT(message_of<DataError>([&] { open(Split::test); }), AllOf(HasSubstr("val/bird"), HasSubstr("train")));
  std::filesystem::remove_all(folder_ / "val");
  EXPECT_THAT(message_of<DataError>([&] { open(Split::test); }), HasSubstr("val"));
  std::filesystem::create_directory(folder_ / "test");
  EXPECT_THAT(message_of<DataError>([&] { open(Split::test); }), HasSubstr("no classes"));

  std::filesystem::create_directory(folder_ / "train/ant");
  EXPECT_THAT(message_of<DataError>([&] { open(); }), AllOf(HasSubstr("train/ant"), HasSubstr("no pictures")));
  std::filesystem::remove_all(folder_ / "train");
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr("train"));
  std::filesystem::create_directory(folder_ / "train");
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr("no classes"));
  config_.root = (folder_ / "file").string();
  folder_.write("file", {'x'});
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr("not a folder"));
}

#endif

}  // namespace
}  // namespace paceline::data
