#include "paceline/base/run_program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline {
namespace {

/// Points closed standard streams at /dev/null, in the direction in which using them still fails. Otherwise a file of the run would get
/// the stream's number, and receive what is printed.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free number: its own
}

constexpr std::string_view kNoMemory = "not enough memory; lower data.batch, or use a smaller model or fewer workers";

/// Without memory, a message cannot be assembled; this one needs no allocation.
void say_no_memory() noexcept {
  for (const std::string_view part : {std::string_view("error: "), kNoMemory, std::string_view("\n")})
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, part.data(), part.size());
}

std::uint64_t limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

/// LibTorch's exceptions have a stack trace after their message, which is cut off. If a resource ran out, the line says what to do.
std::string plain(std::string_view what) {
  for (const char* stack : {"\nException raised from ", "\nframe #0: "}) what = what.substr(0, what.find(stack));
  const auto says = [&](std::string_view words) { return what.find(words) != std::string_view::npos; };
  if (says("can't allocate memory") || says("Cannot allocate memory") || says("std::bad_alloc")) return std::string(kNoMemory);
  if (says("CUDA out of memory")) return fmt::format("{}; lower data.batch, or use a smaller model or fewer workers", what);
  if (says("Too many open files"))
    return fmt::format("{}; raise the limit of open files, which is {} (ulimit -n)", what, limit_of(RLIMIT_NOFILE));
  if (says("Resource temporarily unavailable"))
    return fmt::format("no further thread or process could be started ({}); raise the limits (ulimit -u, ulimit -v) or use fewer workers",
                       what);
  return std::string(what);
}

/// Logs the exception that is being handled in one line, and returns its exit code.
int report_exception() noexcept {
  try {
    try {
      throw;
    } catch (const ConfigError& error) {
      log::error("{}", plain(error.what()));
      return kWrongInput;
    } catch (const DataError& error) {
      log::error("{}", plain(error.what()));
      return kWrongInput;
    } catch (const std::bad_alloc&) {
      say_no_memory();
    } catch (const std::exception& error) {
      log::error("{}", plain(error.what()));
    } catch (...) {
      log::error("internal error, please report it: an exception of an unknown type");
    }
  } catch (...) {
    say_no_memory();
  }
  return kFailed;
}

/// For exceptions in detached threads, for which the runtime would print its own message and dump core.
[[noreturn]] void end_in_one_line() {
  if (std::current_exception()) std::_Exit(report_exception());
  std::abort();
}

}  // namespace

int run_program(const std::function<int()>& body) {
  occupy_closed_streams();
  std::set_terminate(end_in_one_line);
  try {
    return body();
  } catch (...) {
    return report_exception();
  }
}

void ensure_address_space(std::uint64_t bytes) {
  const std::uint64_t limit = limit_of(RLIMIT_AS);
  if (limit == RLIM_INFINITY) return;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::uint64_t used = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)), left = limit - std::min(used, limit);
  if (left < bytes)
    throw Error(
        fmt::format("of the {} MiB of memory that ulimit -v allows, {} MiB are left, but at least {} MiB more are needed; raise the limit, "
                    "or use fewer workers or threads",
                    limit >> 20, left >> 20, bytes >> 20));
}

}  // namespace paceline
