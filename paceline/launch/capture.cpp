#include "paceline/launch/capture.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

namespace paceline::launch {
namespace {

constexpr int kLookForStopMs = 100;

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

/// Moves what has arrived from the descriptor to the text; closes the descriptor at the end of the stream.
void drain(Descriptor& from, std::string& text) {
  std::array<char, 65536> piece;
  const ssize_t count = ::read(from.get(), piece.data(), piece.size());
  if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
  else if (count == 0 || errno != EINTR) from.reset();
}

}  // namespace

std::string Captured::complaint() const {
  std::istringstream lines(err);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  if (last.starts_with("error: ")) last.erase(0, std::string_view("error: ").size());
  return last.empty() ? "it " + exit.text() : last;
}

Captured capture(const std::vector<std::string>& words, const std::atomic<bool>& stop) {
  const ProcessGroup group;
  Process process = spawn({.words = words, .environment = own_environment()}, group);
  Captured captured;
  bool told = false;
  while (process.out || process.err) {
    if (stop && !std::exchange(told, true)) group.signal(SIGKILL);
    std::array<pollfd, 2> streams = {{{process.out.get(), POLLIN, 0}, {process.err.get(), POLLIN, 0}}};  // poll passes over closed ones
    if (::poll(streams.data(), streams.size(), kLookForStopMs) <= 0) continue;
    if (streams[0].revents != 0) drain(process.out, captured.out);
    if (streams[1].revents != 0) drain(process.err, captured.err);
  }
  for (;;) {  // its streams are closed, but it may still run
    if (const auto exit = reap(process.pid)) {
      captured.exit = *exit;
      return captured;
    }
    if (stop && !std::exchange(told, true)) group.signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Captured capture(const std::vector<std::string>& words) {
  static const std::atomic<bool> never = false;
  return capture(words, never);
}

}  // namespace paceline::launch
