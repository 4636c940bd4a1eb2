// Folders of images as a dataset.
#ifdef PACELINE_WITH_PNG

#include <cmath>

#include "paceline/data/image_input.h"
#include "tests/data/images.h"

namespace paceline::data {
namespace {

using testing::AllOf, testing::HasSubstr;

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

TEST_F(ImageFolder, AnotherImageIsCutAsItsOwnAre) {  // and for a dataset of a user's, whole
  const Info info = open()->info();
  std::vector<float> inputs(3 * 16 * 16);
  const std::string file = (folder_ / "train/dog/0.PNG").string();
  read_as_input(file, info, inputs.data());
  EXPECT_THAT(inputs, testing::ElementsAreArray(sample(*open(), 1).inputs));
  Info own = info;
  own.key = "mine";
  read_as_input(file, own, inputs.data());
  EXPECT_LT(inputs[0], 3.0 / 64);
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

  for (const char* link : {"train/cat/99.png", "train/bird"}) {  // an image, and a class
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
  EXPECT_THAT(message_of<DataError>([&] { open(); }), AllOf(HasSubstr("train/ant"), HasSubstr("*.png")));
  std::filesystem::remove_all(folder_ / "train");
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr("train"));
  std::filesystem::create_directory(folder_ / "train");
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr("no classes"));
  config_.root = (folder_ / "file").string();
  folder_.write("file", {'x'});
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr("not a folder"));
}

}  // namespace
}  // namespace paceline::data

#endif
