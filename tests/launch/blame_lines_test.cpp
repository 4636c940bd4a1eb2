#include "paceline/launch/blame_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paceline::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const LauncherLine kSilent{.rank = 2, .silent = 4s, .what = "rank 2 is silent"};

TEST(BlameLines, AreTakenOutOfTheStream) {
  BlameLines lines;
  EXPECT_EQ(lines.filter(0, "before\nhalf a line " + kSilent.text() + "after\n"), "before\nhalf a line after\n");
  ASSERT_TRUE(lines.verdict());
  EXPECT_EQ(lines.verdict()->rank, 2);
  EXPECT_EQ(lines.verdict()->silent, Nanoseconds(4s));
  EXPECT_EQ(lines.verdict()->what, kSilent.what);
}

TEST(BlameLines, ArriveInPieces) {
  const std::string stream = "one\n" + kSilent.text() + "two \x1e\n";
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    BlameLines lines;
    std::string seen = lines.filter(1, stream.substr(0, cut));
    seen += lines.filter(1, stream.substr(cut));
    seen += lines.rest(1);
    EXPECT_EQ(seen, "one\ntwo \x1e\n") << cut;
    EXPECT_TRUE(lines.verdict()) << cut;
  }
}

TEST(BlameLines, OtherTextPassesUnchanged) {
  BlameLines lines;
  const std::string endless = std::string(kLauncherMark) + std::string(3 * kLongestLauncherLine, 'x');
  for (const std::string& text : {std::string("\x1e"), std::string(kLauncherMark) + "no number\n", endless}) {
    std::string seen = lines.filter(0, text);
    seen += lines.rest(0);
    EXPECT_THAT(text, HasSubstr(seen)) << seen.size();  // a mark may be missing, nothing else
    EXPECT_GE(seen.size() + kLauncherMark.size(), text.size());
  }
  EXPECT_FALSE(lines.verdict());
}

TEST(BlameLines, MostRanksDecide) {
  BlameLines lines;
  lines.filter(2, LauncherLine{.rank = 0, .silent = 4s, .what = "cut off"}.text());
  EXPECT_EQ(lines.verdict()->rank, 0);
  lines.filter(0, LauncherLine{.rank = 2, .what = "late"}.text());
  EXPECT_EQ(lines.verdict()->rank, 2) << "rank 0 keeps the store";
  lines.filter(1, kSilent.text());
  EXPECT_EQ(lines.verdict()->rank, 2);
  EXPECT_EQ(lines.verdict()->silent, Nanoseconds(4s));
  EXPECT_TRUE(lines.has_blamed(1));
  lines.forget(1);
  EXPECT_FALSE(lines.has_blamed(1));
}

TEST(BlameLines, ALongOrBrokenReasonStaysOneLine) {
  const std::string text = LauncherLine{.rank = 1, .what = "two\nlines" + std::string(5000, 'x')}.text();
  EXPECT_LE(text.size(), kLongestLauncherLine);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  BlameLines lines;
  EXPECT_EQ(lines.filter(0, text), "");
  EXPECT_EQ(lines.verdict()->rank, 1);
}

}  // namespace
}  // namespace paceline::launch
