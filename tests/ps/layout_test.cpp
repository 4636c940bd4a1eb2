#include "paceline/ps/layout.h"

#include <gmock/gmock.h>

#include "paceline/base/error.h"

namespace paceline::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ArenaLayout lenet() {
  return {
      .entries = {{"conv.weight", {6, 1, 5, 5}, 0, 150, true}, {"conv.bias", {6}, 160, 6, false}, {"fc.weight", {10, 84}, 176, 840, true}},
      .length = 1024,
      .statistics = 12};
}

TEST(ArenaLayout, SurvivesTheWire) {
  EXPECT_EQ(parse_layout(serialise(lenet())), lenet());
  EXPECT_EQ(parse_layout(serialise(ArenaLayout{})), ArenaLayout{});
}

TEST(ArenaLayout, NoDifferenceFromItself) { EXPECT_EQ(difference(lenet(), lenet()), ""); }

TEST(ArenaLayout, DifferencesNameTensorsAndShapes) {
  ArenaLayout other = lenet();
  other.entries[2].shape = {100, 84};
  EXPECT_THAT(difference(lenet(), other), HasSubstr("fc.weight is [10, 84] here and [100, 84] there"));

  other = lenet();
  other.entries.pop_back();
  other.entries.push_back({"head.weight", {10, 84}, 176, 840, true});
  EXPECT_THAT(difference(lenet(), other),
              AllOf(HasSubstr("fc.weight [10, 84] is only here"), HasSubstr("head.weight [10, 84] is only there")));

  other = lenet();
  other.entries[1].offset = 150;
  EXPECT_THAT(difference(lenet(), other), HasSubstr("conv.bias begins at element 160 here and 150 there"));

  other = lenet();
  other.entries[1].decay = true;
  EXPECT_THAT(difference(lenet(), other), HasSubstr("conv.bias has weight decay only there"));

  other = lenet();
  other.length = 2048, other.statistics = 0;
  EXPECT_THAT(difference(lenet(), other),
              AllOf(HasSubstr("1024 elements here and 2048 there"), HasSubstr("12 statistics here and 0 there")));
}

TEST(ArenaLayout, ManyDifferencesAreCutShort) {
  ArenaLayout many = lenet(), none = lenet();
  for (int i = 0; i < 5; ++i) many.entries.push_back({"extra" + std::to_string(i), {1}, 1016 + i, 1, true});
  const std::string line = difference(many, none);
  EXPECT_THAT(line, AllOf(HasSubstr("extra2"), Not(HasSubstr("extra3")), HasSubstr("and 2 more")));
}

TEST(ArenaLayout, EqualNamesAreADifferenceToo) {
  ArenaLayout twice = lenet(), other = lenet();
  twice.entries.push_back(twice.entries.back());
  EXPECT_NE(difference(twice, other), "");
  EXPECT_NE(difference(other, twice), "");
}

TEST(ArenaLayout, RefusesWhatIsNone) {
  const std::string good = serialise(lenet());
  for (std::size_t cut = 0; cut < good.size(); cut += 7) EXPECT_THROW(parse_layout(good.substr(0, cut)), DataError);
  const auto broken = [](auto change) {
    ArenaLayout layout = lenet();
    change(layout);
    return serialise(layout);
  };
  EXPECT_THROW(parse_layout(broken([](ArenaLayout& l) { l.length = 900; })), DataError);             // the last tensor reaches beyond
  EXPECT_THROW(parse_layout(broken([](ArenaLayout& l) { l.entries[1].offset = 149; })), DataError);  // overlaps the first
  EXPECT_THROW(parse_layout(broken([](ArenaLayout& l) { l.entries[0].count = 151; })), DataError);
  EXPECT_THROW(parse_layout(broken([](ArenaLayout& l) { l.entries[0].shape = {1LL << 62, 4}; })), DataError);
  EXPECT_THROW(parse_layout(broken([](ArenaLayout& l) { l.statistics = -1; })), DataError);
  for (const char* length : {"1e300", "8.5", "true", "\"8\"", "18446744073709551615"})
    EXPECT_THROW(parse_layout(std::string(R"({"statistics":0,"entries":[],"length":)") + length + "}"), DataError) << length;
}

TEST(ArenaLayout, BecomesSegmentsAndParts) {
  const auto segments = segments_of(lenet());
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1].offset, 160);
  EXPECT_FALSE(segments[1].decay);
  const auto parts = parts_of(lenet());
  EXPECT_EQ(parts.length, 1024);
  EXPECT_EQ(parts.parts[2].rows, 10);
  EXPECT_EQ(parts.parts[2].columns, 84);
  EXPECT_EQ(parts.parts[1].rows, 1);
}

}  // namespace
}  // namespace paceline::ps
