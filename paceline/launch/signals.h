// Receives signals through a descriptor, and restores their handling afterwards.
#pragma once

#include <array>
#include <csignal>
#include <optional>

#include "paceline/launch/process.h"

namespace paceline::launch {

class Signals {
 public:
  static constexpr std::array kPassedOn = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return queue_.get(); }  ///< poll() it for POLLIN
  std::optional<int> next() const;                 ///< one to pass on, or SIGCHLD

 private:
  sigset_t before_;
  Descriptor queue_;
};

}  // namespace paceline::launch
