#include <cmath>

#include "paceline/data/idx.h"
#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

void append_big_endian(Bytes& bytes, std::uint32_t number) {
  for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(number >> shift));
}

Bytes idx_of(std::uint32_t magic, const std::vector<std::uint32_t>& shape, const Bytes& content) {
  Bytes bytes;
  append_big_endian(bytes, magic);
  for (std::uint32_t size : shape) append_big_endian(bytes, size);
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

Bytes pictures(std::uint32_t count) {
  Bytes content(count * 28 * 28);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::uint8_t>(i * 7 + i / 784);
  return idx_of(0x803, {count, 28, 28}, content);
}

Bytes labels(const Bytes& values) { return idx_of(0x801, {static_cast<std::uint32_t>(values.size())}, values); }

const std::string kImages = "train-images-idx3-ubyte", kLabels = "train-labels-idx1-ubyte";

std::unique_ptr<Dataset> open(const Folder& folder) { return make_dataset(config_of("mnist", folder.path()), Split::train, 0); }

TEST(Mnist, PlainAndCompressedFilesHoldTheSame) {
  Folder plain, packed;
  plain.write(kImages, pictures(4));
  plain.write(kLabels, labels({3, 0, 9, 1}));
  packed.write(kImages + ".gz", gzipped(pictures(4)));
  packed.write(kLabels + ".gz", gzipped(labels({3, 0, 9, 1})));
  const auto a = open(plain), b = open(packed);
  ASSERT_EQ(a->size(), 4);
  EXPECT_EQ(a->info().input, (std::vector<std::int64_t>{1, 28, 28}));
  EXPECT_EQ(a->pixels()->bytes[785], static_cast<std::uint8_t>(785 * 7 + 1));
  EXPECT_TRUE(std::ranges::equal(a->pixels()->bytes, b->pixels()->bytes));
  EXPECT_TRUE(std::ranges::equal(b->pixels()->labels, std::vector<std::int64_t>{3, 0, 9, 1}));
}

// gzip's own rule for files that were put one behind the other; anything else there is no part of the data.
TEST(Mnist, BehindACompressedStreamStandsAnotherOrNothing) {
  Folder folder;
  folder.write(kLabels, labels({1, 2}));
  const Bytes whole = pictures(2);
  Bytes packed = gzipped(Bytes(whole.begin(), whole.begin() + 1000));
  std::ranges::copy(gzipped(Bytes(whole.begin() + 1000, whole.end())), std::back_inserter(packed));
  folder.write(kImages + ".gz", packed);
  EXPECT_EQ(open(folder)->pixels()->bytes[1567], whole.back());
  packed.push_back('x');
  folder.write(kImages + ".gz", packed);
  EXPECT_THAT(message_of<DataError>([&] { open(folder); }),
              testing::AllOf(testing::HasSubstr(kImages + ".gz, byte "), testing::HasSubstr("1 bytes follow the end")));
}

TEST(Mnist, DigitsAreNeverMirrored) {
  Folder folder;
  folder.write(kImages, pictures(1));
  folder.write(kLabels, labels({3}));
  const auto set = open(folder);
  for (std::uint64_t i = 0; i < 50; ++i) {
    RandomStream random(1, Purpose::augment, i);
    EXPECT_EQ(set->plan(0, &random).flip, 0);
  }
}

// Whatever is cut off, plain or packed, images or labels: a DataError that names the file, and never a crash.
TEST(Mnist, ACutFileIsRefusedAtEveryLength) {
  const Bytes whole_images = pictures(2), whole_labels = labels({1, 2});
  for (const bool packed : {false, true})
    for (const bool cut_images : {true, false}) {
      Folder folder;
      const std::string suffix = packed ? ".gz" : "";
      const Bytes images_file = packed ? gzipped(whole_images) : whole_images, labels_file = packed ? gzipped(whole_labels) : whole_labels;
      folder.write(kImages + suffix, images_file);
      folder.write(kLabels + suffix, labels_file);
      const Bytes& victim = cut_images ? images_file : labels_file;
      const std::string name = (cut_images ? kImages : kLabels) + suffix;
      ASSERT_EQ(open(folder)->size(), 2);
      for (std::size_t length = 0; length < victim.size(); length += 1 + length / 20) {
        folder.write(name, first(victim, length));
        EXPECT_THAT(message_of<DataError>([&] { open(folder); }), testing::HasSubstr(name)) << length;
      }
      folder.write(name, first(victim, victim.size() - 1));
      message_of<DataError>([&] { open(folder); });
    }
}

TEST(Mnist, AFlippedByteOfACompressedFileIsNoticedOrHarmless) {
  Folder folder;
  folder.write(kImages, pictures(2));
  const Bytes packed = gzipped(labels({1, 2}));
  int unnoticed = 0;
  for (std::size_t i = 10; i < packed.size(); ++i) {  // behind the header, whose time stamp may be anything
    Bytes damaged = packed;
    damaged[i] ^= 0x10;
    folder.write(kLabels + ".gz", damaged);
    try {  // a bit of the padding may be anything, too
      EXPECT_TRUE(std::ranges::equal(open(folder)->pixels()->labels, std::vector<std::int64_t>{1, 2})) << i;
      ++unnoticed;
    } catch (const DataError&) {
    }
  }
  EXPECT_LE(unnoticed, 1);
}

TEST(Mnist, WhatIsWrongIsNamed) {
  Folder folder;
  const auto problem = [&](const Bytes& images_file, const Bytes& labels_file) {
    folder.write(kImages, images_file);
    folder.write(kLabels, labels_file);
    return message_of<DataError>([&] { open(folder); });
  };
  using testing::AllOf, testing::HasSubstr;
  const Bytes two = labels({1, 2});
  EXPECT_THAT(problem(two, two), AllOf(HasSubstr(kImages), HasSubstr("0x00000801"), HasSubstr("0x00000803")));
  EXPECT_THAT(problem(pictures(3), two), AllOf(HasSubstr("2 labels"), HasSubstr("3 images")));
  EXPECT_THAT(problem(pictures(2), labels({1, 10})),
              AllOf(HasSubstr(kLabels), HasSubstr("byte 9"), HasSubstr("label 10"), HasSubstr("0 to 9")));
  EXPECT_THAT(problem(idx_of(0x803, {1, 32, 32}, Bytes(1024)), labels({1})), HasSubstr("32×32, expected 28×28"));
  Bytes longer = pictures(2);
  longer.push_back(0);
  EXPECT_THAT(problem(longer, two), HasSubstr("more bytes than its header"));
  EXPECT_THAT(problem(idx_of(0x803, {0, 28, 28}, {}), two), HasSubstr("empty"));
  EXPECT_THAT(problem(idx_of(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, {}), two), HasSubstr("cannot hold"));
  EXPECT_THAT(problem(idx_of(0x803, {100'000'000, 28, 28}, Bytes(100)), two), HasSubstr("cannot hold"));
}

TEST(Mnist, MissingPlacesAndFilesSayHowToMendIt) {
  Folder folder;
  EXPECT_THAT(message_of<DataError>([&] { open(folder); }), testing::HasSubstr("data.root"));
  EXPECT_THAT(message_of<DataError>([&] { make_dataset(config_of("mnist", "/no/such/folder"), Split::train, 0); }),
              testing::AllOf(testing::StartsWith("/no/such/folder"), testing::HasSubstr("data.root")));
  std::filesystem::create_directory(folder / kImages);  // a folder where a file should be
  std::filesystem::create_directory(folder / kLabels);
  EXPECT_THAT(message_of<DataError>([&] { open(folder); }), testing::HasSubstr(kImages + ": is not a file"));
  std::filesystem::create_symlink("round", folder / "round");  // nobody can enter that, not even root
  EXPECT_THAT(message_of<DataError>([&] { make_dataset(config_of("mnist", (folder / "round").string()), Split::train, 0); }),
              testing::HasSubstr("Too many levels"));
}

TEST(RealMnist, HasItsKnownPixelsAndMoments) {
  PACELINE_NEEDS_REAL_SET("mnist");
  const auto train = make_dataset(config_of("mnist"), Split::train, 0), test = make_dataset(config_of("mnist"), Split::test, 0);
  ASSERT_EQ(train->size(), 60'000);
  ASSERT_EQ(test->size(), 10'000);
  const auto pixels = train->pixels().value();
  EXPECT_THAT(std::vector<std::int64_t>(pixels.labels.begin(), pixels.labels.begin() + 10),
              testing::ElementsAre(5, 0, 4, 1, 9, 2, 1, 3, 1, 4));
  EXPECT_EQ(pixels.bytes[5 * 28 + 12], 3);  // the first stroke of the first digit
  EXPECT_EQ(pixels.bytes[5 * 28 + 13], 18);
  EXPECT_EQ(test->pixels()->labels[0], 7);
  double sum = 0, squares = 0;
  for (std::uint8_t byte : pixels.bytes) sum += byte, squares += double{1} * byte * byte;
  const double mean = sum / static_cast<double>(pixels.bytes.size());
  EXPECT_NEAR(mean / 255, train->info().mean[0], 5e-5);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(pixels.bytes.size()) - mean * mean) / 255, train->info().deviation[0], 5e-5);
}

}  // namespace
}  // namespace paceline::data
