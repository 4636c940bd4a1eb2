#include <algorithm>
#include <array>

#include "benchmark.h"
#include "names.h"

namespace paceline::bench {
namespace {

struct Function {
  std::string_view key;
  Run run;
};

/// In the order of names.h.
constexpr Function kFunctions[] = {
    {"optim", bench_optim},
    {"step", bench_step},
    {"train", bench_train},
    {"zero", bench_zero},
    {"memory", bench_memory},
    {"tensor", bench_tensor},
    {"overlap", bench_overlap},
    {"pipeline", bench_pipeline},
    {"data", bench_data},
    {"compress", bench_compress},
    {"predictors", bench_predictors},
    {"ps", bench_ps},
    {"allreduce", bench_allreduce},
    {"reduce_scatter", bench_reduce_scatter},
    {"all_gather", bench_all_gather},
    {"broadcast", bench_broadcast},
};
static_assert(std::ranges::equal(kNames, kFunctions, {}, &Entry<std::nullptr_t>::key, &Function::key), "names.h has the same rows");

constexpr auto kBenchmarks = [] {
  std::array<Entry<Run>, std::size(kNames)> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = {kNames[i].key, kNames[i].help, kFunctions[i].run};
  return rows;
}();

}  // namespace

std::span<const Entry<Run>> benchmarks() { return kBenchmarks; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double time_of(const std::function<void()>& work, double least_seconds) {
  const SteadyClock clock;
  const Nanoseconds began = clock.now();
  int calls = 0;
  do work(), ++calls;
  while (seconds(clock.now() - began) < least_seconds);
  return seconds(clock.now() - began) / calls;
}

}  // namespace paceline::bench
