// Shows what is being measured: in one line that is redrawn, disappears at the end and makes room for log lines; or line by line, if lines
// cannot be redrawn.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "paceline/base/log.h"
#include "paceline/observe/terminal.h"

namespace paceline::observe {

class MeasuringLine {
 public:
  explicit MeasuringLine(std::string verb = "measuring ", Terminal terminal = Terminal::standard_error());
  ~MeasuringLine();
  MeasuringLine(const MeasuringLine&) = delete;
  MeasuringLine& operator=(const MeasuringLine&) = delete;

  void say(const std::string& what);

 private:
  void draw();
  void wipe();
  void make_room(const std::function<void()>& write_line);

  std::string verb_, line_;
  Terminal terminal_;
  std::mutex mutex_;                   // of the line and the terminal: lines of the log come from other threads
  std::optional<log::Screen> screen_;  // if there is a live line; the last member, so that it is destroyed first
};

}  // namespace paceline::observe
