#include "paceline/base/log.h"

#include <gtest/gtest.h>

#include <optional>

namespace paceline::log {
namespace {

std::string logged(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, ALineNamesItsLevel) {
  EXPECT_EQ(logged([] { warning("{} of {}", 1, 2); }), "warning: 1 of 2\n");
  EXPECT_EQ(logged([] { debug("hidden"); }), "");
}

TEST(Log, ControlCharactersAreShownAndNeitherBreakTheLineNorDriveTheTerminal) {
  EXPECT_EQ(logged([] { error("'{}' × 2", "a\nb\t\r\x1b[2J\x7f"); }), "error: 'a\\nb\\t\\r\\x1b[2J\\x7f' × 2\n");
}

TEST(Log, AScreenIsAskedForRoomForEveryLineThatIsWritten) {
  std::string seen;
  std::optional<Screen> outer, inner;
  const auto screen = [&](char open, char close) {
    return [&seen, open, close](const std::function<void()>& write_line) {
      seen += open;
      seen += logged(write_line);
      seen += close;
    };
  };
  outer.emplace(screen('(', ')'));
  error("a");
  debug("b");
  EXPECT_EQ(seen, "(error: a\n)");
  inner.emplace(screen('[', ']'));
  outer.reset();
  seen.clear();
  info("c");
  EXPECT_EQ(seen, "[info: c\n]");
  inner.reset();
  EXPECT_EQ(logged([] { info("d"); }), "info: d\n");
  EXPECT_EQ(seen, "[info: c\n]");
}

}  // namespace
}  // namespace paceline::log
