// Shows that a command without other output is still working: after two seconds, what it does, how far it is and for how long.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "paceline/base/clock.h"
#include "paceline/observe/terminal.h"

namespace paceline::observe {

/// One line that counts the seconds and disappears at the end; if lines cannot be redrawn, a line that is written once.
class ElapsedLine {
 public:
  explicit ElapsedLine(std::string what, Terminal terminal = Terminal::standard_error(), Nanoseconds patience = std::chrono::seconds(2));

  /// How far it is, such as "12 of 40 files". Costs nothing worth mentioning: the line is drawn by its own thread, once a second.
  void say(std::string progress);

 private:
  std::string text() const;
  void count_seconds(const std::stop_token& stop, const Terminal& terminal, Nanoseconds patience);

  const std::string what_;
  mutable std::mutex mutex_;
  std::string progress_;
  std::jthread thread_;  // the last member, so that it ends first
};

/// Returns what f() returns; f may take the line, to say how far it is. Print results afterwards, so that they do not mix with the line.
template <class F>
auto patiently(std::string what, F f) {
  ElapsedLine line(std::move(what));
  if constexpr (std::is_invocable_v<F, ElapsedLine&>) return f(line);
  else return f();
}

}  // namespace paceline::observe
