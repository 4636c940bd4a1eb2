#include "paceline/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace paceline::log {
namespace {

std::atomic<Level> least{Level::info};

/// The word that begins a line, and its colour on a terminal.
struct Style {
  const char *word, *colour;
};

Style style_of(Level level) {
  switch (level) {
    case Level::debug: return {"debug", "\033[36m"};
    case Level::info: return {"info", "\033[32m"};
    case Level::warning: return {"warning", "\033[33;1m"};
    case Level::error:
    case Level::silent: break;
  }
  return {"error", "\033[31;1m"};
}

/// Whether standard error is a terminal with colours, and NO_COLOR is not set (no-color.org).
bool has_colours() {
  static const bool answer = [] {
    const char *asked = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
    return (asked == nullptr || *asked == '\0') && terminal != nullptr && std::string_view(terminal) != "dumb" &&
           ::isatty(STDERR_FILENO) == 1;
  }();
  return answer;
}

std::string line_of(Level level, std::string_view text) {
  const auto [word, colour] = style_of(level);
  return has_colours() ? fmt::format("{}{}\033[m: {}\n", colour, word, text) : fmt::format("{}: {}\n", word, text);
}

/// Keeps a message to one line, whatever user input it quotes: newlines and control characters are escaped as in C.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (c == '\r') out += "\\r";
    else if (code < 0x20 || code == 0x7f) out += fmt::format("\\x{:02x}", code);
    else out += c;
  }
  return out;
}

struct Screens {
  std::mutex mutex;
  std::vector<const Screen*> all;
};

Screens& screens() {
  static Screens only;
  return only;
}

}  // namespace

Screen::Screen(MakeRoom make_room) : make_room_(std::move(make_room)) {
  const std::lock_guard lock(screens().mutex);
  screens().all.push_back(this);
}

Screen::~Screen() {
  const std::lock_guard lock(screens().mutex);
  std::erase(screens().all, this);
}

void set_level(Level level) { least = level; }

void write(Level level, std::string_view message) {
  if (level < least.load(std::memory_order_relaxed)) return;
  const std::string line = line_of(level, escaped(message));
  // In one call, so that the lines of several processes do not mix.
  const auto write_line = [&] { std::fwrite(line.data(), 1, line.size(), stderr), std::fflush(stderr); };
  const std::lock_guard lock(screens().mutex);
  if (screens().all.empty()) write_line();
  else screens().all.back()->make_room_(write_line);
}

}  // namespace paceline::log
