#include "paceline/base/process_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace paceline {

std::optional<ProcessState> process_state(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  std::istringstream after_name(line.substr(std::min(line.rfind(')') + 1, line.size())));  // a name may contain anything
  ProcessState found;
  return after_name >> found.state >> found.parent ? std::optional(found) : std::nullopt;
}

}  // namespace paceline
