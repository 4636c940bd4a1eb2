// What a benchmark is: a function that measures and adds rows. One file each, one row in registry.cpp.
//
// Times are compared only within one run: every row that has a peer is measured side by side with it, in alternating rounds, and the
// median of the rounds is reported. A row is a JSON object; columns of the printed table are its keys.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/base/registry.h"

namespace paceline::bench {

struct Options {
  int threads = 0;         // 0: OMP_NUM_THREADS, else all cores
  int rounds = 5;          // of which the median counts
  std::int64_t batch = 0;  // 0: the benchmark's own
  std::string networks;    // comma-separated; empty: the benchmark's own
  std::string device = "cpu", precision = "fp32";
  std::string root;    // of a dataset
  std::string python;  // for peers; empty: the first one that has PyTorch
  bool peer = true;
  std::string against;                // whom train is held against; empty: the benchmark's own
  int ranks = 2;                      // of collectives; workers of train
  std::string engines = "local,shm";  // comma-separated, of collectives and train
  std::string algorithms;             // comma-separated; empty: auto
  std::string sizes;                  // comma-separated; empty: 1 KiB to 256 MiB
  bool peers = false;                 // measure other libraries' collectives too
  std::int64_t elements = 1 << 24;    // of a compressed gradient
  std::string compressors;            // comma-separated; empty: all
};

using Row = nlohmann::ordered_json;
/// Called with what is being measured, for the progress line.
using Say = std::function<void(const std::string&)>;
using Run = std::vector<Row> (*)(const Options&, const Say&);

std::span<const Entry<Run>> benchmarks();

std::vector<Row> bench_optim(const Options& options, const Say& say);
std::vector<Row> bench_step(const Options& options, const Say& say);
std::vector<Row> bench_train(const Options& options, const Say& say);
std::vector<Row> bench_zero(const Options& options, const Say& say);
std::vector<Row> bench_memory(const Options& options, const Say& say);
std::vector<Row> bench_tensor(const Options& options, const Say& say);
std::vector<Row> bench_overlap(const Options& options, const Say& say);
std::vector<Row> bench_pipeline(const Options& options, const Say& say);
std::vector<Row> bench_data(const Options& options, const Say& say);
std::vector<Row> bench_compress(const Options& options, const Say& say);
std::vector<Row> bench_predictors(const Options& options, const Say& say);
std::vector<Row> bench_ps(const Options& options, const Say& say);
std::vector<Row> bench_allreduce(const Options& options, const Say& say);
std::vector<Row> bench_reduce_scatter(const Options& options, const Say& say);
std::vector<Row> bench_all_gather(const Options& options, const Say& say);
std::vector<Row> bench_broadcast(const Options& options, const Say& say);

double median(std::vector<double> values);

/// Seconds that one call of `work` takes: as many calls as fit into `least_seconds`, at least one.
double time_of(const std::function<void()>& work, double least_seconds = 0.2);

}  // namespace paceline::bench
