// Shows that a command without other output is still working: after two seconds, what it does and for how long.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "paceline/base/clock.h"
#include "paceline/observe/terminal.h"

namespace paceline::observe {

/// One line that counts the seconds and disappears at the end; if lines cannot be redrawn, a line that is written once.
class ElapsedLine {
 public:
  explicit ElapsedLine(std::string what, Terminal terminal = Terminal::standard_error(), Nanoseconds patience = std::chrono::seconds(2));

 private:
  std::jthread thread_;
};

/// Returns what f() returns. Print results afterwards, so that they do not mix with the line.
template <class F>
auto patiently(std::string what, F f) {
  const ElapsedLine line(std::move(what));
  return f();
}

}  // namespace paceline::observe
