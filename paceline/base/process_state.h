// The state of a process of this host, from /proc.
#pragma once

#include <sys/types.h>

#include <optional>

#include "paceline/base/clock.h"

namespace paceline {

struct ProcessState {
  char state = '?';  // as ps shows it: R, S and D run or wait, T and t are stopped, Z and X are dead
  pid_t parent = 0;

  bool runs() const { return state == 'R' || state == 'S' || state == 'D'; }
  bool is_stopped() const { return state == 'T' || state == 't'; }
};

/// Nullopt if there is no such process.
std::optional<ProcessState> process_state(pid_t process);

/// How long ago this process was started, to a hundredth of a second.
Nanoseconds process_age();

}  // namespace paceline
