// A program that runs to its end while we wait, with what it wrote in our hands.
#pragma once

#include <atomic>

#include "paceline/launch/process.h"

namespace paceline::launch {

struct Captured {
  Exit exit;
  std::string out, err;  // all of it

  /// Why it failed, in one line: the last one of its standard error without "error: ", or how it ended where it said nothing.
  std::string complaint() const;
};

/// Runs the words with this process's environment and no input. Once `stop` is set, the program and whatever it started are killed.
/// Throws ConfigError where it cannot be run.
Captured capture(const std::vector<std::string>& words, const std::atomic<bool>& stop);
Captured capture(const std::vector<std::string>& words);

}  // namespace paceline::launch
