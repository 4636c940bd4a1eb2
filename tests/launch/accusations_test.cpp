#include "paceline/launch/accusations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paceline::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const LauncherLine kSilent{.rank = 2, .silent = 4s, .what = "rank 2 is silent"};

TEST(Accusations, AreTakenOutOfTheStream) {
  Accusations accusations;
  EXPECT_EQ(accusations.filter(0, "before\nhalf a line " + kSilent.text() + "after\n"), "before\nhalf a line after\n");
  ASSERT_TRUE(accusations.verdict());
  EXPECT_EQ(accusations.verdict()->rank, 2);
  EXPECT_EQ(accusations.verdict()->silent, Nanoseconds(4s));
  EXPECT_EQ(accusations.verdict()->what, kSilent.what);
}

TEST(Accusations, ArriveInPieces) {
  const std::string stream = "one\n" + kSilent.text() + "two \x1e\n";
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    Accusations accusations;
    std::string seen = accusations.filter(1, stream.substr(0, cut));
    seen += accusations.filter(1, stream.substr(cut));
    seen += accusations.rest(1);
    EXPECT_EQ(seen, "one\ntwo \x1e\n") << cut;
    EXPECT_TRUE(accusations.verdict()) << cut;
  }
}

TEST(Accusations, OtherTextPassesUnchanged) {
  Accusations accusations;
  const std::string endless = std::string(kLauncherMark) + std::string(3 * kLongestLauncherLine, 'x');
  for (const std::string& text : {std::string("\x1e"), std::string(kLauncherMark) + "no number\n", endless}) {
    std::string seen = accusations.filter(0, text);
    seen += accusations.rest(0);
    EXPECT_THAT(text, HasSubstr(seen)) << seen.size();  // a mark may be missing, nothing else
    EXPECT_GE(seen.size() + kLauncherMark.size(), text.size());
  }
  EXPECT_FALSE(accusations.verdict());
}

TEST(Accusations, MostRanksDecide) {
  Accusations accusations;
  accusations.filter(2, LauncherLine{.rank = 0, .silent = 4s, .what = "cut off"}.text());
  EXPECT_EQ(accusations.verdict()->rank, 0);
  accusations.filter(0, LauncherLine{.rank = 2, .what = "late"}.text());
  EXPECT_EQ(accusations.verdict()->rank, 2) << "rank 0 keeps the store";
  accusations.filter(1, kSilent.text());
  EXPECT_EQ(accusations.verdict()->rank, 2);
  EXPECT_EQ(accusations.verdict()->silent, Nanoseconds(4s));
  EXPECT_TRUE(accusations.has_accused(1));
  accusations.forget(1);
  EXPECT_FALSE(accusations.has_accused(1));
}

TEST(Accusations, ALongOrBrokenReasonStaysOneLine) {
  const std::string text = LauncherLine{.rank = 1, .what = "two\nlines" + std::string(5000, 'x')}.text();
  EXPECT_LE(text.size(), kLongestLauncherLine);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  Accusations accusations;
  EXPECT_EQ(accusations.filter(0, text), "");
  EXPECT_EQ(accusations.verdict()->rank, 1);
}

}  // namespace
}  // namespace paceline::launch
