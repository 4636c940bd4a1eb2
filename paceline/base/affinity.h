// Which cores a thread runs on, and how many threads are too many.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace paceline {

/// The cores that this thread may run on now, by number; empty where the system does not say. Of another process: that one's first thread.
std::vector<int> allowed_cores(pid_t process = 0);

/// How many cores this process may use: those that taskset, a container or a launcher has left it, whatever part of them OwnCores keeps
/// this thread to.
int usable_cores();

/// Threads that a process computes with where its user does not say how many: OMP_NUM_THREADS, else one for each of its `cores`.
/// ConfigError as check_threads.
int usual_threads(int cores, const char* openmp = std::getenv("OMP_NUM_THREADS"));

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
