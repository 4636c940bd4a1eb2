#include <set>

#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

DataConfig text(const Folder& folder, const std::string& content, std::int64_t context) {
  folder.write("input.txt", Bytes(content.begin(), content.end()));
  DataConfig config = config_of("text", (folder / "input.txt").string());
  config.context = context;
  return config;
}

std::string decoded(const Dataset& set, const std::vector<std::int64_t>& tokens) {
  std::string out;
  for (std::int64_t token : tokens) out += set.vocabulary()[static_cast<std::size_t>(token)];
  return out;
}

TEST(Text, WindowsFollowEachOtherAndTargetsAreOneAhead) {
  Folder folder;
  std::string content;
  for (int i = 0; i < 100; ++i) content += static_cast<char>('a' + i * i % 23);
  const DataConfig config = text(folder, content, 8);
  const auto train = make_dataset(config, Split::train, 0), test = make_dataset(config, Split::test, 0);
  ASSERT_EQ(train->size(), (90 - 1) / 8);
  ASSERT_EQ(test->size(), (10 - 1) / 8);
  EXPECT_TRUE(train->info().tokens);
  EXPECT_EQ(train->info().input, (std::vector<std::int64_t>{8}));
  EXPECT_EQ(train->info().classes, static_cast<std::int64_t>(std::set<char>(content.begin(), content.end()).size()));
  EXPECT_EQ(train->vocabulary(), test->vocabulary());
  EXPECT_TRUE(std::ranges::is_sorted(train->vocabulary()));
  for (std::int64_t i = 0; i < train->size(); ++i) {
    const Batch batch = sample(*train, i);
    EXPECT_EQ(decoded(*train, batch.tokens), content.substr(static_cast<std::size_t>(8 * i), 8));
    EXPECT_EQ(decoded(*train, batch.targets), content.substr(static_cast<std::size_t>(8 * i + 1), 8));
  }
  EXPECT_EQ(decoded(*test, sample(*test, 0).tokens), content.substr(90, 8));
}

TEST(Text, AugmentedWindowsStartLaterButNeverBeyondTheText) {
  Folder folder;
  std::string content(200, ' ');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i + 1);
  const auto set = make_dataset(text(folder, content, 16), Split::train, 0);  // 180 characters, each its own token
  for (std::int64_t i = 0; i < set->size(); ++i) {
    std::set<std::int64_t> starts;
    for (std::uint64_t epoch = 0; epoch < 300; ++epoch) {
      RandomStream random(1, Purpose::augment, static_cast<std::uint64_t>(i), epoch);
      const Batch batch = sample(*set, i, &random);
      starts.insert(batch.tokens[0] - 16 * i);
      ASSERT_LE(batch.targets.back(), 179);
      ASSERT_EQ(batch.targets[0], batch.tokens[0] + 1);
    }
    const std::int64_t room = std::min<std::int64_t>(16, 180 - 17 - 16 * i + 1);
    EXPECT_EQ(*starts.begin(), 0);
    EXPECT_EQ(*starts.rbegin(), room - 1);
    EXPECT_EQ(static_cast<std::int64_t>(starts.size()), room);
  }
}

TEST(Text, KnowsAllTwoHundredAndFiftySixBytes) {
  Folder folder;
  std::string content;
  for (int i = 0; i < 1024; ++i) content += static_cast<char>(i);
  const auto set = make_dataset(text(folder, content, 256), Split::train, 0);
  EXPECT_EQ(set->info().classes, 256);
  EXPECT_EQ(sample(*set, 0).tokens.back(), 255);
}

TEST(Text, ATextShorterThanTheContextIsRefused) {
  Folder folder;
  for (const std::size_t length : {0, 1, 9, 17}) {
    const auto config = text(folder, std::string(length, 'x'), 16);
    EXPECT_THAT(message_of<DataError>([&] { make_dataset(config, Split::train, 0); }), testing::HasSubstr("data.context=16"));
  }
  const auto config = text(folder, std::string(40, 'x'), 16);
  EXPECT_EQ(make_dataset(config, Split::train, 0)->size(), 2);
  EXPECT_THAT(message_of<DataError>([&] { make_dataset(config, Split::test, 0); }), testing::HasSubstr("test part has 4 characters"));
}

TEST(Text, SaysHowToSetItsPlace) {
  Folder folder;
  EXPECT_THAT(message_of<DataError>([&] { make_dataset(config_of("text", folder.path()), Split::train, 0); }),
              testing::HasSubstr("input.txt"));
  const char* shelf = std::getenv("PACELINE_DATA");
  const std::string kept = shelf ? shelf : "";
  unsetenv("PACELINE_DATA");
  for (const char* name : {"text", "mnist", "cifar10", "cifar100", "image_folder"})
    EXPECT_THAT(message_of<ConfigError>([&] { make_dataset(config_of(name), Split::train, 0); }),
                testing::AllOf(testing::HasSubstr(name), testing::HasSubstr("data.root")));
  if (shelf) setenv("PACELINE_DATA", kept.c_str(), 1);
}

TEST(RealText, TinyShakespeareHasSixtyFiveCharacters) {
  PACELINE_NEEDS_REAL_SET("tinyshakespeare/input.txt");
  DataConfig config = config_of("text");
  const auto train = make_dataset(config, Split::train, 0);
  EXPECT_EQ(train->info().classes, 65);
  EXPECT_EQ(train->size(), (1'003'854 - 1) / 128);
  EXPECT_EQ(decoded(*train, sample(*train, 0).tokens).substr(0, 14), "First Citizen:");
}

}  // namespace
}  // namespace paceline::data
