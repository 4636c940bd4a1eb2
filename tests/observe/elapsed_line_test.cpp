#include "paceline/observe/elapsed_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace paceline::observe {
namespace {

using testing::HasSubstr;

/// What is written by the end of a line that waits so long before it shows itself. Its thread has ended when the line is gone.
std::string written(bool live, Nanoseconds patience, Nanoseconds work) {
  std::ostringstream out;
  Terminal terminal;
  terminal.out = &out;
  terminal.live = live;
  {
    const ElapsedLine line("searching", terminal, patience);
    std::this_thread::sleep_for(work);
  }
  return out.str();
}

TEST(ElapsedLine, SaysNothingOfWhatIsSoonDone) {
  EXPECT_EQ(written(true, std::chrono::hours(1), Nanoseconds(0)), "");
  EXPECT_EQ(written(false, std::chrono::hours(1), Nanoseconds(0)), "");
}

TEST(ElapsedLine, CountsSecondsAndIsGoneAtTheEnd) {
  std::string text;
  for (int tries = 0; tries < 100 && text.empty(); ++tries) text = written(true, Nanoseconds(1), std::chrono::milliseconds(100));
  EXPECT_THAT(text, HasSubstr("searching: 0 s"));
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
}

TEST(ElapsedLine, TellsHowFarItIs) {
  std::string text;
  for (int tries = 0; tries < 100 && text.find("2 of 3") == std::string::npos; ++tries) {
    std::ostringstream out;
    Terminal terminal;
    terminal.out = &out;
    {
      ElapsedLine line("searching", terminal, std::chrono::milliseconds(20));
      line.say("1 of 3 plans");
      line.say("2 of 3 plans");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    text = out.str();
  }
  EXPECT_EQ(text, "searching, 2 of 3 plans\n");
}

TEST(ElapsedLine, GivesItselfToWhatItWaitsFor) {
  EXPECT_EQ(patiently("searching", [] { return 3; }), 3);
  EXPECT_EQ(patiently("searching", [](ElapsedLine& line) { return line.say("1 of 3 plans"), 4; }), 4);
}

TEST(ElapsedLine, IsOneLineWhereNothingCanBeDrawnOver) {
  std::string text;
  for (int tries = 0; tries < 100 && text.empty(); ++tries) text = written(false, Nanoseconds(1), std::chrono::milliseconds(100));
  EXPECT_EQ(text, "searching\n");
}

}  // namespace
}  // namespace paceline::observe
