#include "paceline/perf/servers.h"

#include <algorithm>

namespace paceline::perf {
namespace {

double in_doubles(std::int64_t count) { return static_cast<double>(count); }

}  // namespace

double incast_seconds(const ServerLoad& load) {
  return load.alpha_s + std::max(load.bytes / load.worker_bytes_per_s, visit_seconds(load) * in_doubles(load.workers));
}

double visit_seconds(const ServerLoad& load) { return load.bytes / in_doubles(load.servers) / load.server_bytes_per_s; }

Asynchronous asynchronous(std::int64_t workers, double away_s, double visit_s) {
  // An arriving worker finds the queue that the other workers would have without it; half of the visit in progress is left on average.
  double queue = 0, busy = 0, response = visit_s, rate = 0;
  for (std::int64_t n = 1; n <= workers; ++n) {
    response = visit_s * (1 + std::max(0.0, queue - busy / 2));
    rate = in_doubles(n) / (away_s + response);
    if (visit_s > 0) rate = std::min(rate, 1 / visit_s);
    response = in_doubles(n) / rate - away_s;
    queue = rate * response, busy = rate * visit_s;
  }
  return {.cycle_s = away_s + response, .waiting_s = response - visit_s, .updates_per_s = rate, .staleness = in_doubles(workers - 1)};
}

double byteps_seconds(std::int64_t gpu_hosts, std::int64_t cpu_hosts, double bytes, double bytes_per_s) {
  const double n = in_doubles(gpu_hosts), k = in_doubles(std::min(cpu_hosts, gpu_hosts));
  return 2 * n * (n - 1) * bytes / ((n * n + k * n - 2 * k) * bytes_per_s);
}

}  // namespace paceline::perf
