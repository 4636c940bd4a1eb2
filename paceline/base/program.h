// What main() does with errors and with the streams that it got: one line, and an exit code.
#pragma once

#include <functional>

namespace paceline {

/// What `body` returns. What it throws goes to the log in one line; then 2 where the user asked for something wrong or a file is
/// (ConfigError, DataError), 1 otherwise. No file that `body` opens gets the number of a standard stream that is closed.
int run_program(const std::function<int()>& body);

}  // namespace paceline
