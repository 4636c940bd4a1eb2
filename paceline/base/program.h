// What main() does with errors and with the streams that it got: one line, and an exit code.
#pragma once

#include <cstdint>
#include <functional>

namespace paceline {

/// Exit codes that scripts can rely on.
enum ExitCode { kDone = 0, kFailed = 1, kWrongInput = 2, kStopped = 3 };

/// What `body` returns. What it throws goes to the log in one line; then kWrongInput where the user asked for something wrong or a file is
/// (ConfigError, DataError), kFailed otherwise. So does what a thread throws that nobody waits for. No file that `body` opens gets the
/// number of a standard stream that is closed.
int run_program(const std::function<int()>& body);

/// Throws Error where a limit (ulimit -v) leaves this process less. A library that waits for memory until it comes must not be called then.
void ensure_address_space(std::uint64_t bytes);

}  // namespace paceline
