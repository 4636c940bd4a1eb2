// The programs that belong to `paceline`: those of its subcommands (cli/commands.h), paceline-bench, the ranks of benchmarks (bench/ranks)
// and the peers (bench/peers).
#pragma once

#include <string>

namespace paceline::bench {

inline constexpr const char* kBenchProgram = "paceline-bench";

/// Where such a program is: next to this one in a build folder, in libexec/paceline if it is installed; a Python peer also in the sources.
/// Empty if there is none.
std::string helper_if_any(const std::string& name);
/// Throws ConfigError if there is none.
std::string helper(const std::string& name);

/// `paceline` itself, which this program belongs to. Throws ConfigError if there is none.
std::string main_program();

/// Runs the program in place of this one. Throws Error if it cannot be started.
[[noreturn]] void become(const std::string& program, char** arguments);

}  // namespace paceline::bench
