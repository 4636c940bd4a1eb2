// Says what is being measured: in one line that is drawn over and gone at the end, and that makes room for the lines of the log; in lines
// where nothing can be drawn over.
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
  std::optional<log::Screen> screen_;  // where there is a live line; the last member, so that it is gone before the others
};

}  // namespace paceline::observe
