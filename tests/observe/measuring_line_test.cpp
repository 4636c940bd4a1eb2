#include "paceline/observe/measuring_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>

namespace paceline::observe {
namespace {

using testing::HasSubstr;

class MeasuringLineTest : public testing::Test {
 protected:
  void start(bool live, int width = 80) {
    Terminal terminal;
    terminal.out = &out;
    terminal.live = live;
    terminal.width = [width] { return width; };
    line.emplace("measuring ", terminal);
  }

  /// What was written since the last time.
  std::string written() {
    const std::string text = out.str();
    out.str("");
    return text;
  }

  std::ostringstream out;
  std::optional<MeasuringLine> line;
};

TEST_F(MeasuringLineTest, IsDrawnOverAndGoneAtTheEnd) {
  start(true);
  line->say("one");
  EXPECT_EQ(written(), "\rmeasuring one\x1b[K");
  line->say("two");
  EXPECT_EQ(written(), "\rmeasuring two\x1b[K");
  line.reset();
  EXPECT_EQ(written(), "\r\x1b[K");
}

TEST_F(MeasuringLineTest, ALineOfTheLogStandsAboveIt) {
  start(true);
  line->say("one");
  written();
  testing::internal::CaptureStderr();
  log::warning("the peer is slow");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the peer is slow\n"));
  EXPECT_EQ(written(), "\r\x1b[K\rmeasuring one\x1b[K") << "wiped before, drawn again behind";
}

TEST_F(MeasuringLineTest, FitsTheWidth) {
  start(true, 20);
  line->say("something with a long name");
  EXPECT_EQ(written().size(), std::string("\r\x1b[K").size() + 19 + std::string("…").size() - 1);
}

TEST_F(MeasuringLineTest, IsLinesWhereNothingCanBeDrawnOver) {
  start(false, 20);
  line->say("something with a long name");
  line.reset();
  EXPECT_EQ(written(), "measuring something with a long name\n");
}

}  // namespace
}  // namespace paceline::observe
