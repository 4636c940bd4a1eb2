// The sets that need no file: shapes and random.
#include <cmath>
#include <set>

#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

DataConfig small(const std::string& name, std::int64_t count) {
  DataConfig config = config_of(name);
  config.train_samples = config.test_samples = count;
  return config;
}

class Generated : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Sets, Generated, testing::Values("shapes", "random"));

TEST_P(Generated, RepeatFromTheSeedAndDifferBetweenSeedsAndSplits) {
  const auto bytes = [&](Split split, std::uint64_t seed) {
    const auto set = make_dataset(small(GetParam(), 20), split, seed);
    const auto pixels = set->pixels().value();
    return Bytes(pixels.bytes.begin(), pixels.bytes.end());
  };
  EXPECT_EQ(bytes(Split::train, 1), bytes(Split::train, 1));
  EXPECT_NE(bytes(Split::train, 1), bytes(Split::train, 2));
  EXPECT_NE(bytes(Split::train, 1), bytes(Split::test, 1));
}

TEST_P(Generated, TakeAnyShapeAndNumberOfClasses) {
  DataConfig config = small(GetParam(), 200);
  config.shape = {1, 12, 17};
  config.classes = 3;
  const auto set = make_dataset(config, Split::train, 7);
  EXPECT_EQ(set->info().input, config.shape);
  EXPECT_EQ(set->info().classes, 3);
  EXPECT_EQ(set->size(), 200);
  std::set<std::int64_t> labels;
  for (std::int64_t i = 0; i < set->size(); ++i) {
    const Batch batch = sample(*set, i);
    EXPECT_EQ(batch.inputs.size(), 12u * 17);
    labels.insert(batch.targets[0]);
  }
  EXPECT_EQ(labels, (std::set<std::int64_t>{0, 1, 2}));
}

TEST_P(Generated, MeanAndDeviationAreThoseTheyClaim) {
  const auto set = make_dataset(small(GetParam(), 1000), Split::train, 5);
  double sum = 0, squares = 0, count = 0;
  const auto pixels = set->pixels().value();
  for (std::uint8_t byte : pixels.bytes) {
    sum += byte / 255.0;
    squares += byte / 255.0 * byte / 255.0;
    ++count;
  }
  EXPECT_NEAR(sum / count, set->info().mean[0], 0.02);
  EXPECT_NEAR(std::sqrt(squares / count - sum / count * sum / count), set->info().deviation[0], 0.02);
}

TEST_P(Generated, WithoutNormalisationPixelsAreFractions) {
  DataConfig config = small(GetParam(), 5);
  config.normalise = false;
  const auto set = make_dataset(config, Split::train, 5);
  const Batch batch = sample(*set, 2);
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    ASSERT_FLOAT_EQ(batch.inputs[i], static_cast<float>(set->pixels()->bytes[2 * batch.inputs.size() + i]) / 255.0f);
}

TEST_P(Generated, SayHowTheyCannotBe) {
  DataConfig config = small(GetParam(), 5);
  config.shape = {3, 32};
  EXPECT_THAT(message_of<ConfigError>([&] { make_dataset(config, Split::train, 0); }), testing::HasSubstr("[channels, height, width]"));
}

TEST(Shapes, ASmallerSetIsAPrefixOfALargerOne) {
  const auto few = make_dataset(small("shapes", 3), Split::train, 5), many = make_dataset(small("shapes", 30), Split::train, 5);
  EXPECT_TRUE(std::ranges::equal(few->pixels()->bytes, many->pixels()->bytes.first(3 * 3 * 32 * 32)));
}

TEST(Shapes, AreLimitedToTheirKinds) {
  DataConfig config = small("shapes", 5);
  config.classes = 11;
  EXPECT_THAT(message_of<ConfigError>([&] { make_dataset(config, Split::train, 0); }), testing::HasSubstr("data.classes=11"));
  config.classes = 10;
  config.shape = {3, 4, 40};
  EXPECT_THAT(message_of<ConfigError>([&] { make_dataset(config, Split::train, 0); }), testing::HasSubstr("8×8"));
}

// A image has two colours and noise: its pixels fall into two groups that lie apart, and the smaller circle of disc and ring is told by
// its middle. That the kinds differ from each other is what makes the set learnable; here: their mean images do.
TEST(Shapes, KindsDifferInWhatTheyCover) {
  DataConfig config = small("shapes", 4000);
  config.shape = {1, 32, 32};
  const auto set = make_dataset(config, Split::train, 5);
  std::vector<std::vector<double>> contrast(10, std::vector<double>(32 * 32));
  for (std::int64_t i = 0; i < set->size(); ++i) {
    const std::uint8_t* image = set->pixels()->bytes.data() + i * 32 * 32;
    const double ground = (image[0] + image[31] + image[31 * 32] + image[31 * 32 + 31]) / 4.0;  // corners are hardly ever covered
    for (int p = 0; p < 32 * 32; ++p) contrast[set->pixels()->labels[i]][p] += std::abs(image[p] - ground) / 400;
  }
  for (int a = 0; a < 10; ++a)
    for (int b = 0; b < a; ++b) {
      double distance = 0;
      for (int p = 0; p < 32 * 32; ++p) distance += std::abs(contrast[a][p] - contrast[b][p]) / 1024;
      EXPECT_GT(distance, 1.0) << "kinds " << a << " and " << b;
    }
}

TEST(Datasets, EveryRowOfTheTableIsFoundAndOthersAreRefused) {
  EXPECT_EQ(datasets().size(), 8u);
  for (const auto& entry : datasets()) EXPECT_FALSE(entry.help.empty());
  EXPECT_THAT(message_of<ConfigError>([] { make_dataset(config_of("cifar-10"), Split::train, 0); }),
              testing::HasSubstr("did you mean 'cifar10'"));
}

TEST(Datasets, TheConfigurationDescribesEveryField) {
  DataConfig config;
  Config recipe;
  recipe.bind("data", "the data", config);
  recipe.set("data.name=mnist");
  recipe.set("data.shape=[1, 28, 28]");
  recipe.set("data.cutout=8");
  EXPECT_EQ(config.name, "mnist");
  EXPECT_EQ(config.shape, (std::vector<std::int64_t>{1, 28, 28}));
  EXPECT_EQ(config.cutout, 8);
  EXPECT_EQ(recipe.sections()[0].fields().size(), 22u);
  EXPECT_THROW(recipe.set("data.batch=0"), ConfigError);
  EXPECT_THROW(recipe.set("data.name=minst"), ConfigError);
  EXPECT_THROW(recipe.set("data.residency=moon"), ConfigError);
}

TEST(Datasets, MoreSamplesThanThereAreIsAnError) {
  Folder folder;
  folder.write("a.txt", Bytes(1000, 'a'));
  DataConfig config = config_of("text", (folder / "a.txt").string());
  config.context = 10;
  config.train_samples = 90;
  EXPECT_THAT(message_of<ConfigError>([&] { make_dataset(config, Split::train, 0); }),
              testing::HasSubstr("data.train_samples=90, but 'text' has only 89"));
}

}  // namespace
}  // namespace paceline::data
