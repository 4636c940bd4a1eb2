// Which cores a thread runs on, and how many threads are too many.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace paceline {

/// The cores that this thread may run on now, by number; empty where the system does not say.
std::vector<int> allowed_cores();

/// Part `index` of `parts` of a list of cores, beside one another; empty where there are fewer cores than parts.
std::vector<int> part_of(const std::vector<int>& cores, int index, int parts);

/// While this lives, keeps this thread, and the threads that it starts meanwhile, to part `index` of `parts` of the cores that it may use;
/// then it may use all of them again, so that whoever is kept twice, one time after the other, gets the same part twice. Ranks that meet
/// often must not be moved onto one core, where each would keep the other from arriving. Does nothing where there are fewer cores than
/// parts.
class OwnCores {
 public:
  OwnCores(int index, int parts);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

 private:
  std::vector<int> before_;  // empty: nothing was changed
};

/// ConfigError where `threads` that compute are many more than there are cores: they would only keep each other waiting, up to a process
/// that cannot even be ended. `setting` is what the user calls them.
void check_threads(std::string_view setting, std::int64_t threads);

}  // namespace paceline
