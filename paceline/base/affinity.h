// Which cores a thread runs on, and how many threads are too many.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace paceline {

/// The cores that this thread may run on now, by number; empty if the system does not say. For another process: those of its first thread.
std::vector<int> allowed_cores(pid_t process = 0);

/// The number of cores that this process may use: those that taskset, a container or a launcher has left it, even if OwnCores restricts
/// this thread to a part of them.
int usable_cores();

/// The number of threads that a process computes with if its user does not set it: OMP_NUM_THREADS, else one for each of its `cores`.
/// Throws ConfigError as check_threads() does.
int usual_threads(int cores, const char* openmp = std::getenv("OMP_NUM_THREADS"));

/// Part `index` of `parts` of a list of cores, each a run of neighbours; empty if there are fewer cores than parts.
std::vector<int> part_of(const std::vector<int>& cores, int index, int parts);

/// While this lives, restricts this thread, and the threads that it starts meanwhile, to part `index` of `parts` of the cores that it may
/// use. Afterwards it may use all of them again, so that restricting it a second time gives the same part. Ranks that meet often must not
/// be scheduled on one core, where each would keep the other from arriving. Does nothing if there are fewer cores than
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

/// ConfigError if there are many more computing `threads` than cores: they would only wait for each other, and in extreme cases the process
/// could not even be stopped. `setting` is the user's name for them.
void check_threads(std::string_view setting, std::int64_t threads);

}  // namespace paceline
