// Parameter servers in closed form: either all workers visit them at once (incast at the servers' links), or each when it is ready (a
// queue).
#pragma once

#include <cstdint>

namespace paceline::perf {

struct ServerLoad {
  std::int64_t workers = 1, servers = 1;  // each server has a part of the parameters, and its own link
  double bytes = 0;                       // of the whole model, in one direction
  double worker_bytes_per_s = 0, server_bytes_per_s = 0;
  double alpha_s = 0;
};

/// One direction, all workers at the same time: α + max(n/B_w, w·n/(k·B_s)).
double incast_seconds(const ServerLoad& load);
/// How long one worker's bytes occupy each server's link: n/(k·B_s).
double visit_seconds(const ServerLoad& load);

/// Workers that visit the servers whenever they are ready.
struct Asynchronous {
  double cycle_s = 0;        // from one pull of a worker's to the next
  double waiting_s = 0;      // part of the cycle: in the servers' queue
  double updates_per_s = 0;  // of all workers together
  double staleness = 0;      // updates by others between a worker's pull and its push
};
/// `away_s`: a worker's time between two visits; `visit_s`: how long one visit occupies the servers. Mean value analysis of a closed queue
/// with equal visits, limited by the rate of back-to-back visits; off by a few percent if workers and servers are equally busy. Each worker
/// sees every other one once between its pull and its push, so staleness is the number of others.
Asynchronous asynchronous(std::int64_t workers, double away_s, double visit_s);

/// BytePS (Jiang et al., OSDI 2020): the minimum time in which N GPU hosts and k additional CPU hosts add up n bytes, each with bandwidth
/// B: 2N(N−1)n / ((N² + kN − 2k)B). More than N additional hosts do not help. With k = 0 it is a ring's 2(N−1)n/(NB), with k = N a
/// parameter server's n/B.
double byteps_seconds(std::int64_t gpu_hosts, std::int64_t cpu_hosts, double bytes, double bytes_per_s);

}  // namespace paceline::perf
