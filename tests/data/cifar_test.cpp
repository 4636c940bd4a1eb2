#include "paceline/data/cifar.h"

#include <cmath>

#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

constexpr std::size_t kImageBytes = 3072;

/// Records with these labels; the pixels of record r are r + 1, r + 2, …
Bytes records(const std::vector<Bytes>& labels) {
  Bytes bytes;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    bytes.insert(bytes.end(), labels[r].begin(), labels[r].end());
    for (std::size_t i = 0; i < kImageBytes; ++i) bytes.push_back(static_cast<std::uint8_t>(r + 1 + i));
  }
  return bytes;
}

const CifarFiles kTwo{.names = {"a.bin", "b.bin"}, .records = 2};

TEST(Cifar, JoinsItsFilesInOrder) {
  Folder folder;
  folder.write("a.bin", records({{3}, {9}}));
  folder.write("b.bin", records({{0}, {7}}));
  const Images images = read_cifar(folder.path(), kTwo);
  EXPECT_THAT(images.labels, testing::ElementsAre(3, 9, 0, 7));
  ASSERT_EQ(images.bytes.size(), 4 * kImageBytes);
  EXPECT_EQ(images.bytes[0], 1);
  EXPECT_EQ(images.bytes[kImageBytes], 2);
  EXPECT_EQ(images.bytes[2 * kImageBytes + 5], 6);
}

const CifarFiles kHundred{.names = {"a.bin"}, .records = 2, .classes = 100, .coarse_classes = 20};

TEST(Cifar, OfTwoLabelsTheSecondIsTheClass) {
  Folder folder;
  folder.write("a.bin", records({{19, 99}, {0, 4}}));
  const Images images = read_cifar(folder.path(), kHundred);
  EXPECT_THAT(images.labels, testing::ElementsAre(99, 4));
  EXPECT_EQ(images.bytes[kImageBytes], 2);
}

TEST(Cifar, AFileOfAnotherSizeIsRefusedWithBothSizes) {
  Folder folder;
  const Bytes whole = records({{3}, {9}});
  folder.write("a.bin", whole);
  for (std::size_t length :
       {std::size_t{0}, std::size_t{1}, kImageBytes, kImageBytes + 1, whole.size() - 1, whole.size() + 1, 2 * whole.size()}) {
    Bytes other = whole;
    other.resize(length);
    folder.write("b.bin", other);
    EXPECT_THAT(
        message_of<DataError>([&] { read_cifar(folder.path(), kTwo); }),
        testing::AllOf(testing::StartsWith((folder / "b.bin").string()), testing::HasSubstr("has " + std::to_string(length) + " bytes"),
                       testing::HasSubstr("expected " + std::to_string(whole.size()))));
  }
  std::filesystem::remove(folder / "b.bin");
  EXPECT_THAT(message_of<DataError>([&] { read_cifar(folder.path(), kTwo); }), testing::HasSubstr("b.bin"));
  std::filesystem::create_directory(folder / "b.bin");
  EXPECT_THAT(message_of<DataError>([&] { read_cifar(folder.path(), kTwo); }), testing::HasSubstr("b.bin"));
}

TEST(Cifar, ALabelOutOfRangeIsNamedWithItsPlace) {
  Folder folder;
  folder.write("a.bin", records({{3}, {10}}));
  folder.write("b.bin", records({{0}, {7}}));
  EXPECT_THAT(message_of<DataError>([&] { read_cifar(folder.path(), kTwo); }),
              testing::AllOf(testing::HasSubstr("a.bin, byte 3073"), testing::HasSubstr("label 10"), testing::HasSubstr("0 to 9")));
  for (const auto& [labels, problem] : {std::pair(Bytes{20, 5}, "byte 3074: coarse label 20 is out of range, expected 0 to 19"),
                                        std::pair(Bytes{19, 100}, "byte 3075: label 100 is out of range, expected 0 to 99")}) {
    folder.write("a.bin", records({{19, 99}, labels}));
    EXPECT_THAT(message_of<DataError>([&] { read_cifar(folder.path(), kHundred); }), testing::HasSubstr(problem));
  }
}

TEST(Cifar, ThePublishedSizesAreExpected) {
  Folder folder;
  const auto problem = [&](const std::string& name, Split split) {
    return message_of<DataError>([&] { make_dataset(config_of(name, folder.path()), split, 0); });
  };
  for (const char* file : {"data_batch_1.bin", "test_batch.bin", "train.bin", "test.bin"}) folder.write(file, Bytes(100));
  EXPECT_THAT(problem("cifar10", Split::train), testing::HasSubstr("expected 30730000"));
  EXPECT_THAT(problem("cifar10", Split::test), testing::HasSubstr("expected 30730000"));
  EXPECT_THAT(problem("cifar100", Split::train), testing::HasSubstr("expected 153700000"));
  EXPECT_THAT(problem("cifar100", Split::test), testing::HasSubstr("expected 30740000"));
}

TEST(RealCifar10, HasItsKnownPixelsAndMoments) {
  PACELINE_NEEDS_REAL_SET("cifar-10");
  const auto train = make_dataset(config_of("cifar10"), Split::train, 0), test = make_dataset(config_of("cifar10"), Split::test, 0);
  ASSERT_EQ(train->size(), 50'000);
  ASSERT_EQ(test->size(), 10'000);
  const auto pixels = train->pixels().value();
  EXPECT_THAT(std::vector<std::int64_t>(pixels.labels.begin(), pixels.labels.begin() + 5), testing::ElementsAre(6, 9, 9, 4, 1));
  EXPECT_THAT(Bytes(pixels.bytes.begin(), pixels.bytes.begin() + 4), testing::ElementsAre(59, 43, 50, 68));
  EXPECT_EQ(test->pixels()->labels[0], 3);
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < 50'000; ++i)
      for (std::size_t p = 0; p < 1024; ++p) {
        const double byte = pixels.bytes[i * kImageBytes + c * 1024 + p];
        sum += byte;
        squares += byte * byte;
      }
    const double mean = sum / (50'000.0 * 1024);
    EXPECT_NEAR(mean / 255, train->info().mean[c], 1e-4);
    EXPECT_NEAR(std::sqrt(squares / (50'000.0 * 1024) - mean * mean) / 255, train->info().deviation[c], 1e-4);
  }
}

TEST(RealCifar10, TheFolderOrTheOneAboveItMayBeTheRoot) {
  PACELINE_NEEDS_REAL_SET("cifar-10");
  DataConfig config = config_of("cifar10", real_set("cifar-10"));
  config.test_samples = 7;
  EXPECT_EQ(make_dataset(config, Split::test, 0)->size(), 7);
  config.root = std::filesystem::path(config.root).parent_path();
  EXPECT_EQ(make_dataset(config, Split::test, 0)->size(), 7);
}

}  // namespace
}  // namespace paceline::data
