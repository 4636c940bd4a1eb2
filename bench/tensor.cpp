// Tensor parallelism on one host: workers with a core each that share every layer, against one worker with one core, in alternating rounds.
// A row for the step as it trains, with its update, and the bytes of the tensors that the ranks exchange in it, by the rules.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <thread>

#include "benchmark.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/split_loss.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"

namespace paceline::bench {
namespace {

struct SharedNetwork {
  const char* name;
  graph::ModelConfig model;
  std::int64_t batch;
};

std::vector<SharedNetwork> shared_networks() {
  graph::ModelConfig mlp, gpt;
  mlp.network = "mlp", mlp.input = {1, 32, 32}, mlp.hidden = {2048, 2048, 2048}, mlp.classes = 10;
  gpt.network = "gpt", gpt.layers = 2, gpt.width = 768, gpt.heads = 12, gpt.input = {128}, gpt.classes = 4096;
  return {{"mlp", mlp, 128}, {"gpt", gpt, 4}};
}

/// Makes steps of a worker, alone or along the tensor axis.
class Stepper {
 public:
  Stepper(const SharedNetwork& item, std::int64_t batch, comm::Communicator& comm, bool sequence)
      : mesh_(comm, {.data = 1, .tensor = comm.size()}),
        module_(graph::make_graph(item.model),
                {.tensor = comm.size() > 1 ? &mesh_.tensor() : nullptr, .sequence = sequence && comm.size() > 1}) {
    optim_.name = "adamw", optim_.rate = 1e-3;
    step::Context context{.model = module_, .optim = optim_, .mesh = mesh_, .bus = bus_, .clock = clock_, .compress = compress_};
    if (module_.split().splits_logits(module_.graph()))
      context.loss = std::make_shared<nn::SplitSoftmaxLoss>(mesh_.tensor(), item.model.classes);
    strategy_ = strategies::make_strategy({{.name = "single"}}, context);
    std::vector<std::int64_t> shape = {batch};
    shape.insert(shape.end(), item.model.input.begin(), item.model.input.end());
    const bool tokens = item.model.input.size() == 1;
    const std::int64_t targets = tokens ? at::empty(shape).numel() : batch;
    const at::Tensor numbers = at::arange(at::empty(shape).numel(), at::kLong) * 31;
    batch_.inputs = tokens ? at::remainder(numbers, item.model.classes).reshape(shape) : numbers.to(at::kFloat).sin().reshape(shape);
    batch_.targets = at::remainder(at::arange(targets, at::kLong) * 7, item.model.classes);
    if (tokens) batch_.targets = batch_.targets.reshape(shape);
  }

  void step() { strategy_->step(batch_, {.step = ++step_, .rate = 1e-3}); }

 private:
  SteadyClock clock_;
  observe::Bus bus_;
  comm::Mesh mesh_;
  compress::CompressConfig compress_;
  optim::OptimConfig optim_;
  nn::GraphModule module_;
  std::unique_ptr<step::Strategy> strategy_;
  step::Batch batch_;
  std::int64_t step_ = 0;
};

/// Seconds that a step takes `ranks` threads, by round, in `steps` of each round.
std::vector<double> time_steps(const SharedNetwork& item, std::int64_t batch, int ranks, int rounds, int steps, bool sequence) {
  std::vector<double> taken;
  auto group = comm::local_group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const OwnCores cores(rank, std::max(ranks, usable_cores()));
      tensor::configure_libtorch(c10::Device(c10::kCPU), tensor::Precision::fp32, 1, true);
      comm::Communicator& comm = *group[static_cast<std::size_t>(rank)];
      Stepper stepper(item, batch, comm, sequence);
      for (int i = 0; i < 2; ++i) stepper.step();
      for (int round = 0; round < rounds; ++round) {
        comm.run(comm::barrier());
        const SteadyClock clock;
        const Nanoseconds began = clock.now();
        for (int i = 0; i < steps; ++i) stepper.step();
        comm.run(comm::barrier());
        if (rank == 0) taken.push_back(seconds(clock.now() - began) / steps);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return taken;
}

}  // namespace

std::vector<Row> bench_tensor(const Options& options, const Say& say) {
  const std::vector<std::string> wanted = items_of(options.networks);
  std::vector<Row> rows;
  for (const SharedNetwork& item : shared_networks()) {
    if (!wanted.empty() && std::ranges::find(wanted, item.name) == wanted.end()) continue;
    const std::int64_t batch = options.batch > 0 ? options.batch : item.batch;
    for (const bool sequence : {false, true}) {
      if (sequence && item.model.network != "gpt") continue;
      say(fmt::format("{}, tensor={}{}", item.name, options.ranks, sequence ? ", sequence" : ""));
      const double once = time_steps(item, batch, 1, 1, 1, false).front();
      const int steps = std::max(1, static_cast<int>(0.7 / once));
      std::vector<double> alone, shared;
      for (int round = 0; round < options.rounds; ++round) {
        alone.push_back(time_steps(item, batch, 1, 1, steps, false).front());
        shared.push_back(time_steps(item, batch, options.ranks, 1, steps, sequence).front());
      }
      const graph::Graph graph = graph::make_graph(item.model);
      const graph::TensorSplit split = graph::tensor_split(graph, options.ranks, sequence);
      std::int64_t bytes = 0;
      for (const graph::LayerSplit& layer : split.layers)
        for (const auto* traffic : {&layer.forward, &layer.backward})
          for (const graph::Traffic& one : *traffic) bytes += one.bytes;
      rows.push_back({{"network", item.name},
                      {"tensor", options.ranks},
                      {"sequence", sequence},
                      {"batch", batch},
                      {"one_worker_ms", median(alone) * 1e3},
                      {"shared_ms", median(shared) * 1e3},
                      {"speedup", median(alone) / median(shared)},
                      {"exchanged_MB", static_cast<double>(bytes * batch) / 1e6}});
    }
  }
  if (rows.empty()) throw ConfigError(fmt::format("bench tensor has no network '{}'; it has mlp and gpt", options.networks));
  return rows;
}

}  // namespace paceline::bench
