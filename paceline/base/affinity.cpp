#include "paceline/base/affinity.h"

#include <sched.h>
#include <unistd.h>

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

std::vector<int> allowed_cores(pid_t process) {
  std::vector<int> cores;
  cpu_set_t allowed;
  if (sched_getaffinity(process, sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

int usable_cores() {
  // Asked once, and by OwnCores before it changes anything: a part must never count as the whole. Not hardware_concurrency(), which counts
  // the machine's cores.
  static const int cores = [] {
    const int allowed = static_cast<int>(allowed_cores(::getpid()).size());
    return std::max(1, allowed > 0 ? allowed : static_cast<int>(std::thread::hardware_concurrency()));
  }();
  return cores;
}

int usual_threads(int cores, const char* openmp) {
  // The first number of a list is for the outermost level; OpenMP itself complains about anything that is not a number.
  const int threads = openmp == nullptr ? 0 : std::atoi(openmp);
  check_threads("OMP_NUM_THREADS", threads);
  return std::max(1, threads > 0 ? threads : cores);
}

std::vector<int> part_of(const std::vector<int>& cores, int index, int parts) {
  const std::ptrdiff_t count = std::ssize(cores);
  if (count < parts) return {};
  return {cores.begin() + count * index / parts, cores.begin() + count * (index + 1) / parts};
}

OwnCores::OwnCores(int index, int parts) {
  usable_cores();
  if (parts <= 1) return;
  std::vector<int> all = allowed_cores();
  const std::vector<int> own = part_of(all, index, parts);
  if (!own.empty() && keep_to(own)) before_ = std::move(all);
}

OwnCores::~OwnCores() {
  if (!before_.empty()) keep_to(before_);
}

void check_threads(std::string_view setting, std::int64_t threads) {
  const std::int64_t cores = usable_cores(), most = std::max<std::int64_t>(64, 4 * cores);
  if (threads > most)
    throw ConfigError(fmt::format("{}={} is more than {} cores can use; give at most {}, or leave it out", setting, threads, cores, most));
}

}  // namespace paceline
