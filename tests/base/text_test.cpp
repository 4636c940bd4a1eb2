#include "paceline/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Text, IsTrimmed) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Text, IsSplitIntoAllItsParts) {
  EXPECT_THAT(split("a,b c,,d", ','), ElementsAre("a", "b c", "", "d"));
  EXPECT_THAT(split(",a,", ','), ElementsAre("", "a", ""));
  EXPECT_THAT(split("a", ';'), ElementsAre("a"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Text, ListsHaveItems) {
  EXPECT_THAT(items_of(" a, b c ,,d,"), ElementsAre("a", "b c", "d"));
  EXPECT_THAT(items_of("x=1  y=2", ' '), ElementsAre("x=1", "y=2"));
  EXPECT_THAT(items_of(" , "), IsEmpty());
}

TEST(Text, CountsReadWell) {
  EXPECT_EQ(show_count(0), "0");
  EXPECT_EQ(show_count(999), "999");
  EXPECT_EQ(show_count(1000), "1,000");
  EXPECT_EQ(show_count(-1234567), "-1,234,567");
  EXPECT_EQ(show_count(-123), "-123");
  EXPECT_EQ(plural(1, "step"), "1 step");
  EXPECT_EQ(plural(12345, "step"), "12,345 steps");
}

}  // namespace
}  // namespace paceline
