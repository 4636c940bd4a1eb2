#include "paceline/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace paceline::launch {

Signals::Signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : kPassedOn) sigaddset(&taken, signal);
  sigaddset(&taken, SIGCHLD);
  sigaddset(&taken, SIGPIPE);  // a reader of our output may disappear without ending the ranks
  ::sigprocmask(SIG_BLOCK, &taken, &before_);
  sigdelset(&taken, SIGPIPE);
  queue_ = Descriptor(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!queue_) throw std::system_error(errno, std::system_category(), "signalfd");
}

Signals::~Signals() {
  const timespec now{};
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  while (::sigtimedwait(&pipe, nullptr, &now) > 0) {
  }
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::next() const {
  signalfd_siginfo info;
  if (::read(queue_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace paceline::launch
