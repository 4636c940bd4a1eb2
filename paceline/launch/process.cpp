#include "paceline/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "paceline/base/error.h"
#include "paceline/base/text.h"

namespace paceline::launch {
namespace {

[[noreturn]] void fail(const char* attempt) { throw std::system_error(errno, std::system_category(), attempt); }

/// Signals as a program expects them at its start: none blocked, none ignored.
void reset_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// What a guard does after fork(): it allocates no memory and writes nothing.
[[noreturn]] void guard(int launcher_alive) {
  ::setpgid(0, 0);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::dup2(launcher_alive, 0);
  // It must keep nothing open, above all not the launcher's output, whose reader waits for the end of the stream.
  if (::syscall(SYS_close_range, 1u, ~0u, 0u) != 0)
    for (int number = 1; number < 4096; ++number) ::close(number);
  char byte;
  while (::read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  ::kill(0, SIGKILL);  // the group, including itself
  ::_exit(0);
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  list.reserve(words.size() + 1);
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

/// The child's side of spawn(). Returns only on failure, with errno.
void become(const char* program, char* const* words, char* const* environment, pid_t group, pid_t launcher, int in, int out, int err) {
  reset_signals();
  if (::setpgid(0, group) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (::getppid() != launcher) ::_exit(1);  // the launcher died before we asked to be notified
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) return;
  ::execve(program, words, environment);
}

}  // namespace

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : std::string("SIG") + name;
}

std::string Exit::text() const {
  if (signal != 0) return fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
  return fmt::format("exited with code {}", code);
}

ProcessGroup::ProcessGroup() {
  Pipe pipe = make_pipe();
  alive_ = std::move(pipe.write);
  guard_ = ::fork();
  if (guard_ < 0) fail("fork");
  if (guard_ == 0) guard(pipe.read.get());
  ::setpgid(guard_, guard_);  // parent and child both do it, so the order does not matter
}

ProcessGroup::~ProcessGroup() {
  ::kill(-guard_, SIGKILL);
  while (::waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ProcessGroup::signal(int number) const { ::kill(-guard_, number); }

Process spawn(const Command& command, const ProcessGroup& group) {
  const std::string program = find_program(command.words.front());
  const std::vector<char*> words = pointers(command.words), environment = pointers(command.environment);
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe(), failed = make_pipe();
  if (command.input == Command::Input::none) in.read = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int input = command.input == Command::Input::inherited ? 0 : in.read.get();

  const pid_t launcher = ::getpid();
  Process process;
  process.pid = ::fork();
  if (process.pid < 0) fail("fork");
  if (process.pid == 0) {
    become(program.c_str(), words.data(), environment.data(), group.id(), launcher, input, out.write.get(), err.write.get());
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(failed.write.get(), &error, sizeof(error));
    ::_exit(127);
  }
  failed.write.reset();
  int error = 0;
  if (::read(failed.read.get(), &error, sizeof(error)) == sizeof(error)) {
    ::waitpid(process.pid, nullptr, 0);
    throw ConfigError(fmt::format("cannot run '{}': {}", program, std::strerror(error)));
  }
  if (command.input == Command::Input::pipe) process.in = std::move(in.write);
  process.out = std::move(out.read);
  process.err = std::move(err.read);
  return process;
}

std::optional<Exit> reap(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  if (WIFSIGNALED(status)) return Exit{0, WTERMSIG(status)};
  return Exit{WEXITSTATUS(status), 0};
}

std::string find_program(const std::string& name) {
  const auto is_file = [](const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  };
  if (name.find('/') != std::string::npos) {
    if (!is_file(name)) throw ConfigError(fmt::format("there is no program '{}'", name));
    if (::access(name.c_str(), X_OK) != 0)
      throw ConfigError(fmt::format("'{}' may not be executed; chmod +x it, or put its interpreter in front", name));
    return name;
  }
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path, ':'))
    if (std::string candidate = fmt::format("{}/{}", folder, name); is_file(candidate) && ::access(candidate.c_str(), X_OK) == 0)
      return candidate;
  throw ConfigError(
      fmt::format("there is no program '{}' on PATH{}", name, is_file(name) ? fmt::format("; did you mean './{}'?", name) : ""));
}

}  // namespace paceline::launch
