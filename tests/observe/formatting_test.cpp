#include "paceline/observe/formatting.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "paceline/observe/terminal.h"

namespace paceline::observe {
namespace {

TEST(Text, NumbersReadWell) {
  EXPECT_EQ(show_large(940), "940");
  EXPECT_EQ(show_large(11173962), "11.2 M");
  EXPECT_EQ(show_large(999999), "1.00 M");
  EXPECT_EQ(show_bytes(12), "12 B");
  EXPECT_EQ(show_bytes(1234567890), "1.23 GB");
  EXPECT_EQ(show_rate(4.071), "4.07");
  EXPECT_EQ(show_rate(4065.4), "4,065");
  EXPECT_EQ(show_rate(NAN), "-");  // of ASCII, whatever the terminal
  EXPECT_EQ(show_loss(0.43214), "0.4321");
  EXPECT_EQ(show_loss(123456), "1.235e+05");
  EXPECT_EQ(show_loss(NAN), "nan");
  EXPECT_EQ(show_percent(0.85234, 1), "85.2%");
}

TEST(Text, DurationsChangeTheirUnit) {
  EXPECT_EQ(show_moment(0.00042), "420 µs");
  EXPECT_EQ(show_moment(0.002337), "2.34 ms");
  EXPECT_EQ(show_moment(0.0451), "45.1 ms");
  EXPECT_EQ(show_moment(12.34), "12.3 s");
  EXPECT_EQ(show_moment(NAN), "-");
  EXPECT_EQ(show_duration(0.0451), "45 ms");
  EXPECT_EQ(show_duration(12.34), "12.3 s");
  EXPECT_EQ(show_duration(59.97), "1m 00s");
  EXPECT_EQ(show_duration(83), "1m 23s");
  EXPECT_EQ(show_duration(7380), "2h 03m");
  EXPECT_EQ(show_duration(3 * 86400 + 4 * 3600), "3d 4h");
  EXPECT_EQ(show_duration(NAN), "-");
  EXPECT_EQ(show_wait(42.4), "42s");
  EXPECT_EQ(show_wait(59.7), "1m 00s");
}

TEST(Text, WidthIsCountedInCharacters) {
  EXPECT_EQ(columns("größe ━╸"), 8);
  EXPECT_EQ(fit("ä", 3), "ä  ");
  EXPECT_EQ(fit("ä", 3, Align::right), "  ä");
  EXPECT_EQ(fit("äöü", 2), "äö");
  EXPECT_EQ(shorten("runs/a/b/c/d", 7), "run…c/d");
  EXPECT_EQ(shorten("runs/a/b/c/d", 7, false), "ru.../d");
  EXPECT_EQ(shorten("short", 7), "short");
}

TEST(Terminal, IsLiveWhereItSaysWhichOneItIs) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY), before = ::dup(STDERR_FILENO);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) GTEST_SKIP() << "no terminals here";
  const int other_side = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  const char* variable = std::getenv("TERM");
  const std::string kept = variable ? variable : "";
  for (const char* kind : {"xterm", "dumb", ""}) {
    ::setenv("TERM", kind, 1);
    ::dup2(other_side, STDERR_FILENO);
    const Terminal found = Terminal::standard_error();
    ::dup2(before, STDERR_FILENO);
    EXPECT_EQ(found.live, kind == std::string("xterm")) << kind;
  }
  if (variable) ::setenv("TERM", kept.c_str(), 1);
  else ::unsetenv("TERM");
  for (int descriptor : {terminal, other_side, before}) ::close(descriptor);
}

TEST(Box, KeepsItsWidthAndNeverLeavesTheTerminal) {
  Terminal terminal;
  EXPECT_EQ(box(terminal, "done", Ink::good, {{"a", "1"}, {"long", "22"}}, 20),
            "╭─ done ───────────╮\n"
            "│  a     1         │\n"
            "│  long  22        │\n"
            "╰──────────────────╯\n");
  terminal.width = [] { return 24; };
  terminal.unicode = false;
  EXPECT_EQ(box(terminal, "t", Ink::plain, {{"run", "runs/a-very-long-name"}}),
            "+- t ------------------+\n"
            "|  run  runs/...-name  |\n"
            "+----------------------+\n");
}

TEST(Box, IsEvenWhereTheTerminalIsTooNarrowForIt) {
  Terminal terminal;
  terminal.width = [] { return 10; };
  EXPECT_EQ(box(terminal, "done", Ink::plain, {{"test accuracy", "9"}}),
            "╭─ done ─────────────╮\n"
            "│  test accuracy  9  │\n"
            "╰────────────────────╯\n");
  EXPECT_EQ(box(terminal, "stopped: by a signal", Ink::plain, {{"a", "1"}}),
            "╭─ stopped: by a signal ╮\n"
            "│  a  1                 │\n"
            "╰───────────────────────╯\n");
}

TEST(Box, ColoursOnlyWhereTheyAreWanted) {
  EXPECT_EQ(paint("x", Ink::good, true), "\x1b[32mx\x1b[0m");
  EXPECT_EQ(paint("x", Ink::good, false), "x");
}

}  // namespace
}  // namespace paceline::observe
