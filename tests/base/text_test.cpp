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

}  // namespace
}  // namespace paceline
