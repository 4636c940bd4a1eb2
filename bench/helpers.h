// The programs that belong to `paceline`: paceline-bench, the ranks of benchmarks (bench/ranks) and the peers (bench/peers).
#pragma once

#include <string>

namespace paceline::bench {

inline constexpr const char* kBenchProgram = "paceline-bench";

/// Where such a program is: next to this one in a build folder, in libexec/paceline if it is installed; a Python peer also in the sources.
/// Empty if there is none.
std::string helper_if_any(const std::string& name);
/// Throws ConfigError if there is none.
std::string helper(const std::string& name);

/// `paceline` itself: this program, or, in paceline-bench, the one that it belongs to. Throws ConfigError if there is none.
std::string main_program();

}  // namespace paceline::bench
