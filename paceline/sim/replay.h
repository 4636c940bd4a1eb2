// Replays the step programs of a job (schedule/program.h) for all its ranks, event by event. Each rank works through its own lanes,
// computes at its own pace, takes part in collectives and messages, and visits parameter servers; links are shared by all transfers.
//
// A collective ends for all its ranks at the same time. It begins when the last of them arrives, minus what the others could do before that
// (collective_play.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "paceline/perf/compute_times.h"
#include "paceline/ps/consistency.h"
#include "paceline/ps/timing.h"
#include "paceline/sim/collectives.h"

namespace paceline::sim {

/// A span of one rank, for a trace.
struct Span {
  int rank = 0;
  std::string_view lane = {};
  std::string name = {};
  Nanoseconds begin{0}, end{0};
};

/// Servers that workers pull from and push to.
struct ServerOptions {
  std::string consistency = "bsp";
  ps::ConsistencyConfig settings = {};
};

struct Job {
  std::vector<schedule::Program> stages;        // by rank of the pipeline
  std::vector<schedule::Program> between = {};  // for steps between two meetings, if `period` is above 1
  std::vector<schedule::Program> opening = {};  // for the first step of a period, where a server's worker pulls; empty: as `between`
  std::int64_t period = 1;                      // every `period`-th step uses `stages`
  schedule::ProgramSettings settings;           // from which they were made: mesh, samples, servers
  perf::Cluster cluster;
  ServerOptions servers = {};
  ps::TimingConfig timing = {.distribution =
                                 "constant"};  // stragglers, pauses, slow links; compute_ms, latency and bandwidth come from the model
  Faults faults = {};
  std::int64_t hosts_per_switch = 0;
  std::int64_t steps = 20;
  std::uint64_t seed = 1;
  int traced = 0;  // how many ranks, from the first on, report spans
  std::function<void(const Span&)> trace = {};
};

/// Where a rank's time went, in seconds.
struct Spent {
  double computing = 0;
  double communicating = 0;  // one of its transfers was active, and it did not compute
  double waiting = 0;        // for stragglers, another stage, or a server
  double sum() const { return computing + communicating + waiting; }
};

/// How busy the links of a kind were.
struct LinkUse {
  std::string kind;  // "ports", "hosts", "servers", "switches"
  double mean = 0, most = 0;
  std::string busiest = {};  // "host 3, in"
};

struct Replayed {
  double seconds = 0;
  std::vector<double> steps =
      {};  // seconds of each step: in synchronous jobs from the end of one to the end of the next, otherwise of each worker separately
  bool synchronous = true;
  double steps_per_s = 0;  // a synchronous job makes one step together, workers of others one each
  double samples_per_s = 0;
  std::vector<Spent> ranks = {};
  std::vector<LinkUse> links = {};
  std::vector<std::int64_t> staleness = {};  // number of gradients by how many updates others made in between; empty without servers
  std::int64_t updates = 0, dropped = 0;
  std::int64_t events = 0, transfers = 0;
};

/// ConfigError if the job does not fit its cluster, or its programs wait for something that never happens.
Replayed replay(const Job& job, const perf::ComputeTimes& times, CollectiveModel collectives);

}  // namespace paceline::sim
