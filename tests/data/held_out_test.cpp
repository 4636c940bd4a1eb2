// data.held_out: a part of the training set that is tested on and not trained on.
#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DataConfig holding_out(std::int64_t held_out) {
  DataConfig config = config_of("shapes");
  config.shape = {1, 8, 8}, config.train_samples = 20, config.test_samples = 7, config.held_out = held_out;
  return config;
}

Bytes pixels_of(const Dataset& set) {
  const auto pixels = set.pixels().value();
  return {pixels.bytes.begin(), pixels.bytes.end()};
}

TEST(HeldOut, TheLastTrainingSamplesTakeThePlaceOfTheTestSet) {
  const auto whole = make_dataset(holding_out(0), Split::train, 3);
  const auto rest = make_dataset(holding_out(6), Split::train, 3), held = make_dataset(holding_out(6), Split::test, 3);
  ASSERT_EQ(rest->size(), 14);
  ASSERT_EQ(held->size(), 6);
  for (std::int64_t i = 0; i < 20; ++i) {
    const Batch expected = sample(*whole, i), got = i < 14 ? sample(*rest, i) : sample(*held, i - 14);
    EXPECT_EQ(got.inputs, expected.inputs) << i;
    EXPECT_EQ(got.targets, expected.targets) << i;
  }
  Bytes joined = pixels_of(*rest);
  for (const std::uint8_t byte : pixels_of(*held)) joined.push_back(byte);
  EXPECT_EQ(joined, pixels_of(*whole));
  EXPECT_EQ(held->pixels()->labels.front(), whole->pixels()->labels[14]);
  EXPECT_EQ(held->plan(2, nullptr).sample, 2) << "its place among the pixels of the part";
}

TEST(HeldOut, NoWindowOfTextReachesFromOnePartIntoTheOther) {
  Folder folder;
  std::string content(200, ' ');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i + 1);  // 180 of them are for training: tokens 0 to 179
  folder.write("input.txt", Bytes(content.begin(), content.end()));
  DataConfig config = config_of("text", (folder / "input.txt").string());
  config.context = 10, config.held_out = 5;
  const auto rest = make_dataset(config, Split::train, 0), held = make_dataset(config, Split::test, 0);
  ASSERT_EQ(rest->size(), 17 - 5 - 1);
  ASSERT_EQ(held->size(), 5);
  const std::int64_t first = sample(*held, 0).tokens.front();
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    RandomStream random(1, Purpose::augment, 0, epoch);
    EXPECT_LT(sample(*rest, rest->size() - 1, &random).targets.back(), first);
  }
  EXPECT_EQ(held->vocabulary(), rest->vocabulary());
}

TEST(HeldOut, LeavesSomethingToTrainOn) {
  EXPECT_EQ(make_dataset(holding_out(19), Split::train, 1)->size(), 1);
  EXPECT_THAT(message_of<ConfigError>([] { make_dataset(holding_out(20), Split::train, 1); }),
              AllOf(HasSubstr("data.held_out=20"), HasSubstr("at most 19")));
}

}  // namespace
}  // namespace paceline::data
