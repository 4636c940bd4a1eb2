// What main() does with errors and with the streams that it got: one line, and an exit code.
#pragma once

#include <functional>

namespace paceline {

/// Exit codes that scripts can rely on.
enum ExitCode { kDone = 0, kFailed = 1, kWrongInput = 2, kStopped = 3 };

/// What `body` returns. What it throws goes to the log in one line; then kWrongInput where the user asked for something wrong or a file is
/// (ConfigError, DataError), kFailed otherwise. No file that `body` opens gets the number of a standard stream that is closed.
int run_program(const std::function<int()>& body);

}  // namespace paceline
