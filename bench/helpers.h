// Programs that a benchmark starts: its ranks (bench/ranks) and the peers (bench/peers).
#pragma once

#include <string>

namespace paceline::bench {

/// Where such a program lies: beside `paceline` in a build folder, in libexec/paceline where it is installed; a Python peer also in the
/// sources. Empty where there is none.
std::string helper_if_any(const std::string& name);
/// Throws ConfigError where there is none.
std::string helper(const std::string& name);

}  // namespace paceline::bench
