#include "paceline/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

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

}  // namespace

void set_level(Level level) { sink().set_level(to_spdlog(level)); }

void write(Level level, std::string_view message) { sink().log(to_spdlog(level), message); }

}  // namespace paceline::log
