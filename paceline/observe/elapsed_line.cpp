#include "paceline/observe/elapsed_line.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>

#include "paceline/observe/measuring_line.h"

namespace paceline::observe {
namespace {

void count_seconds(const std::stop_token& stop, const std::string& what, const Terminal& terminal, Nanoseconds patience) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  const SteadyClock clock;
  const Nanoseconds begun = clock.now();
  const auto stopped_within = [&](Nanoseconds time) { return wake.wait_for(lock, stop, time, [&] { return stop.stop_requested(); }); };
  if (stopped_within(patience)) return;
  MeasuringLine line("", terminal);
  if (!terminal.live) return line.say(what);
  do line.say(fmt::format("{}: {:.0f} s", what, seconds(clock.now() - begun)));
  while (!stopped_within(std::chrono::seconds(1)));
}

}  // namespace

ElapsedLine::ElapsedLine(std::string what, Terminal terminal, Nanoseconds patience)
    : thread_([what = std::move(what), terminal = std::move(terminal), patience](const std::stop_token& stop) {
        count_seconds(stop, what, terminal, patience);
      }) {}

}  // namespace paceline::observe
