#include "paceline/base/affinity.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline {
namespace {

bool keep_to(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

}  // namespace

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

std::vector<int> part_of(const std::vector<int>& cores, int index, int parts) {
  const std::ptrdiff_t count = std::ssize(cores);
  if (count < parts) return {};
  return {cores.begin() + count * index / parts, cores.begin() + count * (index + 1) / parts};
}

OwnCores::OwnCores(int index, int parts) {
  if (parts <= 1) return;
  std::vector<int> all = allowed_cores();
  const std::vector<int> own = part_of(all, index, parts);
  if (!own.empty() && keep_to(own)) before_ = std::move(all);
}

OwnCores::~OwnCores() {
  if (!before_.empty()) keep_to(before_);
}

void check_threads(std::string_view setting, std::int64_t threads) {
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency()), most = std::max<std::int64_t>(64, 4 * cores);
  if (threads > most)
    throw ConfigError(fmt::format("{}={} is more than {} cores can use; at most {}, or 0 for all cores", setting, threads, cores, most));
}

}  // namespace paceline
