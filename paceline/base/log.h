// Logging: human-readable lines on standard error; standard output stays free for --json.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>

namespace paceline::log {

enum class Level { debug, info, warning, error, silent };

void set_level(Level level);
void write(Level level, std::string_view message);

/// Something else that draws on standard error, such as a progress bar. While it lives, every log line goes through its `make_room`, which
/// clears what it has drawn, calls `write_line` and draws again. Lines come from any thread, one at a time; make_room must not log. If
/// there are several, the last one that was created is used.
class Screen {
 public:
  using MakeRoom = std::function<void(const std::function<void()>& write_line)>;
  explicit Screen(MakeRoom make_room);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

 private:
  friend void write(Level, std::string_view);
  MakeRoom make_room_;
};

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace paceline::log
