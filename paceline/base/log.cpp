#include "paceline/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <string>
#include <vector>

namespace paceline::log {
namespace {

spdlog::logger& sink() {
  static const auto logger = [] {
    auto made = spdlog::stderr_color_mt("paceline");
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
    case Level::silent: return spdlog::level::off;
  }
  return spdlog::level::info;
}

/// One line, whatever names and values of the user's are quoted in it: what would break it or drive the terminal is shown as C writes it.
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

void set_level(Level level) { sink().set_level(to_spdlog(level)); }

void write(Level level, std::string_view message) {
  if (!sink().should_log(to_spdlog(level))) return;
  const auto write_line = [&] { sink().log(to_spdlog(level), escaped(message)); };
  const std::lock_guard lock(screens().mutex);
  if (screens().all.empty()) write_line();
  else screens().all.back()->make_room_(write_line);
}

}  // namespace paceline::log
