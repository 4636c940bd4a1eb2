#include "paceline/observe/measuring_line.h"

#include "paceline/observe/formatting.h"

namespace paceline::observe {

MeasuringLine::MeasuringLine(std::string verb, Terminal terminal) : verb_(std::move(verb)), terminal_(std::move(terminal)) {
  if (terminal_.live) screen_.emplace([this](const auto& write_line) { make_room(write_line); });
}

MeasuringLine::~MeasuringLine() {
  screen_.reset();
  wipe();
}

void MeasuringLine::say(const std::string& what) {
  const std::lock_guard lock(mutex_);
  line_ = verb_ + what;
  if (terminal_.live) draw();
  else *terminal_.out << line_ + "\n" << std::flush;
}

void MeasuringLine::draw() {
  const int width = terminal_.width() - 1;  // the last column would wrap
  *terminal_.out << "\r" + shorten(line_, width, terminal_.unicode) + "\x1b[K" << std::flush;
}

void MeasuringLine::wipe() {
  if (terminal_.live && !line_.empty()) *terminal_.out << "\r\x1b[K" << std::flush;
}

void MeasuringLine::make_room(const std::function<void()>& write_line) {
  const std::lock_guard lock(mutex_);
  wipe();
  write_line();
  if (!line_.empty()) draw();
}

}  // namespace paceline::observe
