#include "paceline/observe/elapsed_line.h"

#include <fmt/format.h>

#include <condition_variable>

#include "paceline/observe/measuring_line.h"

namespace paceline::observe {

ElapsedLine::ElapsedLine(std::string what, Terminal terminal, Nanoseconds patience)
    : what_(std::move(what)),
      thread_([this, terminal = std::move(terminal), patience](const std::stop_token& stop) { count_seconds(stop, terminal, patience); }) {}

void ElapsedLine::say(std::string progress) {
  const std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
}

std::string ElapsedLine::text() const {
  const std::lock_guard lock(mutex_);
  return progress_.empty() ? what_ : fmt::format("{}, {}", what_, progress_);
}

void ElapsedLine::count_seconds(const std::stop_token& stop, const Terminal& terminal, Nanoseconds patience) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  const SteadyClock clock;
  const Nanoseconds begun = clock.now();
  const auto stopped_within = [&](Nanoseconds time) { return wake.wait_for(lock, stop, time, [&] { return stop.stop_requested(); }); };
  if (stopped_within(patience)) return;
  MeasuringLine line("", terminal);
  if (!terminal.live) return line.say(text());
  do line.say(fmt::format("{}: {:.0f} s", text(), seconds(clock.now() - begun)));
  while (!stopped_within(std::chrono::seconds(1)));
}

}  // namespace paceline::observe
