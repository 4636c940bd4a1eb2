// Runs a program to its end and captures its output.
#pragma once

#include <atomic>

#include "paceline/launch/process.h"

namespace paceline::launch {

struct Captured {
  Exit exit;
  std::string out, err;  // all of it

  /// Why it failed, in one line: the last line of its standard error without "error: ", or how it ended if it wrote nothing.
  std::string complaint() const;
};

/// Runs the words with this process's environment and no input. Once `stop` is set, the program and its children are killed.
/// Throws ConfigError if it cannot be run.
Captured capture(const std::vector<std::string>& words, const std::atomic<bool>& stop);
Captured capture(const std::vector<std::string>& words);

}  // namespace paceline::launch
