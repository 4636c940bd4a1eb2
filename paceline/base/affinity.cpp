#include "paceline/base/affinity.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline {

void keep_to_cores(int index, int parts) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  const int count = static_cast<int>(cores.size());
  if (count < parts) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int i = count * index / parts; i < count * (index + 1) / parts; ++i) CPU_SET(cores[static_cast<std::size_t>(i)], &own);
  sched_setaffinity(0, sizeof(own), &own);
}

void check_threads(std::string_view setting, std::int64_t threads) {
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency()), most = std::max<std::int64_t>(64, 4 * cores);
  if (threads > most)
    throw ConfigError(fmt::format("{}={} is more than {} cores can use; at most {}, or 0 for all cores", setting, threads, cores, most));
}

}  // namespace paceline
