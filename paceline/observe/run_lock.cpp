#include "paceline/observe/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <string>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::observe {
namespace {

/// " (pid 123)" from the file that the holder has written; empty if it has not written it yet.
std::string holder(int descriptor) {
  std::array<char, 20> text{};
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  std::string digits(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  digits.erase(std::ranges::find_if_not(digits, [](unsigned char c) { return std::isdigit(c); }), digits.end());
  return digits.empty() ? "" : fmt::format(" (pid {})", digits);
}

}  // namespace

// A separate file that is never removed: the other files are replaced or grow, and removing this one would let two processes hold "the"
// lock.
RunLock::RunLock(const RunFolder& folder)
    : file_(::open((folder.path() / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
  if (!file_) return;
  int taken = -1;
  while ((taken = ::flock(file_.get(), LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) continue;
  if (taken == 0) {
    const std::string pid = fmt::format("{}\n", ::getpid());
    // Only for the error message; failing on a full disk does not matter.
    [[maybe_unused]] const bool told = ::ftruncate(file_.get(), 0) == 0 && ::pwrite(file_.get(), pid.data(), pid.size(), 0) > 0;
  } else if (errno == EWOULDBLOCK) {
    throw ConfigError(fmt::format("{}: another process{} is training there; stop it first, or wait until it ends", folder.path().string(),
                                  holder(file_.get())));
  }
}

}  // namespace paceline::observe
