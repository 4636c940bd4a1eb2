#include "paceline/observe/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "paceline/observe/formatting.h"

namespace paceline::observe {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// UTF-8, unless the first of the locale's variables that is set names another encoding.
bool locale_has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = variable(name);
    if (value.empty()) continue;
    const auto has = [value](std::string_view part) { return value.find(part) != std::string_view::npos; };
    return has("UTF-8") || has("utf8") || has("UTF8");
  }
  return true;
}

int standard_error_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

std::string paint(std::string_view text, Ink ink, bool on) {
  static constexpr const char* kCodes[] = {"0", "1", "2", "36", "32", "33"};
  if (!on || ink == Ink::plain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<int>(ink)], text);
}

Terminal Terminal::standard_error() {
  Terminal terminal;
  terminal.out = &std::cerr;
  const std::string_view kind = variable("TERM");
  terminal.live = ::isatty(STDERR_FILENO) == 1 && !kind.empty() && kind != "dumb";
  terminal.color = terminal.live && variable("NO_COLOR").empty();
  terminal.unicode = locale_has_unicode();
  terminal.width = standard_error_width;
  return terminal;
}

std::string box(const Terminal& terminal, std::string_view title, Ink ink, const std::vector<Row>& rows, int least) {
  struct Frame {
    const char *line, *side, *top_left, *top_right, *bottom_left, *bottom_right;
  };
  static constexpr Frame kRound = {"─", "│", "╭", "╮", "╰", "╯"}, kPlain = {"-", "|", "+", "+", "+", "+"};
  const Frame& frame = terminal.unicode ? kRound : kPlain;

  int label_width = 0, value_width = 0;
  for (const Row& row : rows) {
    label_width = std::max(label_width, columns(row.label));
    value_width = std::max(value_width, columns(row.value));
  }
  const int around = 2 + 2 + 2 + label_width + 2;  // sides, margins, the gap after the label
  const int wished = std::min(terminal.width(), std::max({least, around + value_width, columns(title) + 8}));
  // If the terminal is too narrow for the labels or the title, the borders and the rows still align.
  const int width = std::max({wished, around + 1, columns(title) + 5});
  value_width = width - around;

  const auto dim = [&](const std::string& text) { return terminal.ink(text, Ink::dim); };
  std::string out = dim(std::string(frame.top_left) + frame.line) + " " + terminal.ink(title, ink) + " " +
                    dim(repeat(frame.line, width - columns(title) - 5) + frame.top_right) + "\n";
  for (const Row& row : rows)
    out += fmt::format("{}  {}  {}  {}\n", dim(frame.side), dim(fit(row.label, label_width)),
                       fit(shorten(row.value, value_width, terminal.unicode), value_width), dim(frame.side));
  return out + dim(frame.bottom_left + repeat(frame.line, width - 2) + frame.bottom_right) + "\n";
}

}  // namespace paceline::observe
