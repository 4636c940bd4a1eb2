#include "paceline/base/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <new>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline {
namespace {

/// A standard stream that came closed leads nowhere, and using it still fails. Otherwise a file of the run would get its number, and with
/// it what is printed.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free number: its own
}

constexpr const char* kLower = "lower data.batch, or take a smaller model or fewer workers";

/// What LibTorch throws carries the stack behind its message, for those who debug it. Without memory its messages say so, and no more.
std::string plain(std::string_view what) {
  for (const char* stack : {"\nException raised from ", "\nframe #0: "}) what = what.substr(0, what.find(stack));
  const auto says = [&](std::string_view words) { return what.find(words) != std::string_view::npos; };
  const bool no_memory = says("can't allocate memory") || says("CUDA out of memory");
  return no_memory ? fmt::format("{}; {}", what, kLower) : std::string(what);
}

}  // namespace

int run_program(const std::function<int()>& body) {
  occupy_closed_streams();
  try {
    return body();
  } catch (const ConfigError& error) {
    log::error("{}", error.what());
    return kWrongInput;
  } catch (const DataError& error) {
    log::error("{}", error.what());
    return kWrongInput;
  } catch (const std::bad_alloc&) {
    log::error("there is not enough memory for this; {}", kLower);
    return kFailed;
  } catch (const std::exception& error) {
    log::error("{}", plain(error.what()));
    return kFailed;
  }
}

}  // namespace paceline
