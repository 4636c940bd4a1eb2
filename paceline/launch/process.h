// Starts processes with their output in pipes, and makes sure that none is left behind.
//
// Children of a launcher live in a ProcessGroup with a guard: a child of the launcher that does nothing but wait for the launcher's end of
// a pipe to close, and then kills the group. So the ranks and whatever they started are gone even after kill -9 of the launcher.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "paceline/base/descriptor.h"

namespace paceline::launch {

struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe();

/// How a process ended.
struct Exit {
  int code = 0;
  int signal = 0;  // 0: by itself, with the code

  bool good() const { return code == 0 && signal == 0; }
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  std::string text() const;  ///< "exited with code 1", "was killed by signal 9 (SIGKILL)"
};
std::string signal_name(int signal);  ///< "SIGTERM"

class ProcessGroup {
 public:
  ProcessGroup();
  ~ProcessGroup();  ///< kills what is left
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  pid_t id() const { return guard_; }
  void signal(int number) const;

 private:
  pid_t guard_ = -1;
  Descriptor alive_;  // closes with the launcher
};

struct Command {
  std::vector<std::string> words;        // the program, which is looked up on PATH, and its arguments
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  enum class Input { none, inherited, pipe } input = Input::none;
};

struct Process {
  pid_t pid = -1;
  Descriptor in, out, err;
};

/// Starts it as a member of the group; it dies with this thread. Throws ConfigError if the program cannot be run.
Process spawn(const Command& command, const ProcessGroup& group);

/// How it ended, if it has.
std::optional<Exit> reap(pid_t pid);

/// The path of a program on PATH. Throws ConfigError if it is not there or may not be run.
std::string find_program(const std::string& name);

}  // namespace paceline::launch
