#include "paceline/base/process_state.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace paceline {

namespace {

/// What the system says of a process after its name, which may contain anything; empty if there is no such process.
std::istringstream stat_after_name(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  return std::istringstream(line.substr(std::min(line.rfind(')') + 1, line.size())));
}

}  // namespace

std::optional<ProcessState> process_state(pid_t process) {
  std::istringstream after_name = stat_after_name(process);
  ProcessState found;
  return after_name >> found.state >> found.parent ? std::optional(found) : std::nullopt;
}

Nanoseconds process_age() {
  std::istringstream after_name = stat_after_name(::getpid());
  constexpr int kFieldsBefore = 19;  // between the name and the time of the start, in ticks since the host was booted
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) after_name >> skipped;
  double ticks = 0;
  timespec now{};
  if (!(after_name >> ticks) || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return Nanoseconds(0);
  const double started = ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double age = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
  return Nanoseconds(static_cast<std::int64_t>(1e9 * std::max(age, 0.0)));
}

}  // namespace paceline
