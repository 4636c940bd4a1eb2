// Which cores a thread runs on, and how many threads are too many.
#pragma once

#include <cstdint>
#include <string_view>

namespace paceline {

/// Keeps this thread, and the threads that it starts later, to part `index` of `parts` of the cores that it may use now. Ranks that meet
/// often must not be moved onto one core, where each would keep the other from arriving. Does nothing where there are fewer cores than
/// parts.
void keep_to_cores(int index, int parts);

/// ConfigError where `threads` that compute are many more than there are cores: they would only keep each other waiting, up to a process
/// that cannot even be ended. `setting` is what the user calls them.
void check_threads(std::string_view setting, std::int64_t threads);

}  // namespace paceline
