// The frame around main(): errors become one line and an exit code, and closed standard streams do no harm.
#pragma once

#include <cstdint>
#include <functional>

namespace paceline {

/// Exit codes that scripts can rely on.
enum ExitCode { kDone = 0, kFailed = 1, kWrongInput = 2, kStopped = 3 };

/// Returns what `body` returns. An exception is logged in one line; the result is then kWrongInput for the user's settings and files
/// (ConfigError, DataError), and kFailed otherwise. The same holds for exceptions in detached threads. No file that `body` opens gets the
/// number of a closed standard stream.
int run_program(const std::function<int()>& body);

/// Throws Error if a limit (ulimit -v) leaves this process less memory. Call it before a library that would wait for memory forever.
void ensure_address_space(std::uint64_t bytes);

}  // namespace paceline
