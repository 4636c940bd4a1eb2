#include "paceline/base/program.h"

#include <fcntl.h>
#include <unistd.h>

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

}  // namespace

int run_program(const std::function<int()>& body) {
  constexpr int kFailed = 1, kWrongInput = 2;
  occupy_closed_streams();
  try {
    return body();
  } catch (const ConfigError& error) {
    log::error("{}", error.what());
    return kWrongInput;
  } catch (const DataError& error) {
    log::error("{}", error.what());
    return kWrongInput;
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    return kFailed;
  }
}

}  // namespace paceline
