#include <algorithm>

#include "benchmark.h"

namespace paceline::bench {
namespace {

constexpr Entry<Run> kBenchmarks[] = {
    {"optim", "fused updates over ResNet-50's parameters against torch::optim and the memory's speed", bench_optim},
    {"step", "one worker's training step against the same step in Python's PyTorch", bench_step},
    {"train", "workers that train together against PyTorch's DistributedDataParallel over Gloo", bench_train},
    {"zero",
     "ZeRO's stages against plain data parallelism: samples per second, traffic, memory, and PyTorch's where installed (--sizes "
     "LAYERS,WIDTH)",
     bench_zero},
    {"memory", "peak bytes of four ranks under ZeRO's stages beside the formulas, gpt of 100 M parameters (--sizes LAYERS,WIDTH)",
     bench_memory},
    {"tensor", "workers with a core each that share every layer, against one worker with one core", bench_tensor},
    {"overlap", "overlap and compression between two hosts, over a link of 1 Gbit/s", bench_overlap},
    {"pipeline", "bubbles of pipeline schedules beside their formulas, and two stages on two cores against one thread", bench_pipeline},
    {"data", "images per second from one core: crop and flip, JPEG folders", bench_data},
    {"compress", "one core's speed of encoding and decoding gradients, their ratio, and that of a plain copy", bench_compress},
    {"predictors", "what a report costs LC-ASGD's server: both predictors, by steps ahead, beside the slides' times", bench_predictors},
    {"ps", "pull and push of ResNet-18's parameters: in process against a plain copy, and over gRPC on loopback", bench_ps},
    {"allreduce", "by message size, against Open MPI, MPICH and Gloo (--peers) and the memory's floor", bench_allreduce},
    {"reduce_scatter", "the same", bench_reduce_scatter},
    {"all_gather", "the same", bench_all_gather},
    {"broadcast", "the same", bench_broadcast},
};

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
