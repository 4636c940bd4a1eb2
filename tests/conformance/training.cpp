#include "training.h"

#include <ATen/ATen.h>

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/schedule/schedule.h"
#include "paceline/strategies/registry.h"

namespace paceline::conformance {
namespace {

constexpr int kSteps = 20;

/// Gives every collective of a strategy one algorithm.
class WithAlgorithm final : public comm::Communicator {
 public:
  WithAlgorithm(comm::Communicator& inner, std::string algorithm) : inner_(inner), algorithm_(std::move(algorithm)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  comm::Topology topology() const override { return inner_.topology(); }
  std::string engine() const override { return inner_.engine(); }
  comm::Work start(const comm::Operation& operation) override { return inner_.start(with(operation)); }
  void run(const comm::Operation& operation) override { inner_.run(with(operation)); }
  std::unique_ptr<comm::Communicator> split(int color, int key) override { return inner_.split(color, key); }
  comm::Memory allocate(std::int64_t bytes) override { return inner_.allocate(bytes); }

 private:
  comm::Operation with(comm::Operation operation) const {
    if (!operation.is_collective()) return operation;
    // An algorithm need not have every collective; what it has not is not what is tried.
    for (const auto& row : schedule::algorithms())
      if (row.key == algorithm_ && row.make.offer(operation.collective())) operation.algorithm = algorithm_;
    return operation;
  }

  comm::Communicator& inner_;
  std::string algorithm_;
};

graph::Graph graph_of(const TrainingCase& wanted) {
  graph::ModelConfig config;
  config.network = wanted.network;
  if (wanted.network == "mlp") config.input = {1, 6, 5}, config.hidden = {33, 17};
  config.classes = 5;
  return graph::make_graph(config);
}

step::Batch global_batch(const graph::Graph& graph, std::int64_t samples, std::int64_t step) {
  std::vector<std::int64_t> shape = {samples};
  shape.insert(shape.end(), graph.input().begin(), graph.input().end());
  std::int64_t count = 1;
  for (std::int64_t dim : shape) count *= dim;
  const at::Tensor values = ((at::arange(count, at::kDouble) + static_cast<double>(977 * step)) * 0.7717).sin() * 1.5;
  return {values.to(at::kFloat).reshape(shape), at::remainder(at::arange(samples, at::kLong) * 7 + step, 5), samples};
}

at::Tensor train(comm::Communicator& comm, const TrainingCase& wanted, const std::string& algorithm) {
  nn::GraphModule::Options options;
  options.seed = 3;
  options.allocate = data_parallel::allocate_from(comm);
  nn::GraphModule module(graph_of(wanted), options);
  const optim::OptimConfig optim{.name = wanted.optimizer, .rate = 0.05, .weight_decay = 1e-3, .clip_norm = wanted.clip_norm};
  const compress::CompressConfig compress;
  observe::Bus bus;
  const SteadyClock clock;
  const comm::Mesh mesh(comm);
  strategies::StrategyConfig config;
  config.name = comm.size() > 1 ? "allreduce" : "single";
  config.update = wanted.update, config.overlap = wanted.overlap, config.bucket_mb = wanted.bucket_mb;
  const auto strategy = strategies::make_strategy({config, {.algorithm = algorithm}}, {.model = module,
                                                                                       .optim = optim,
                                                                                       .mesh = mesh,
                                                                                       .bus = bus,
                                                                                       .clock = clock,
                                                                                       .compress = compress,
                                                                                       .seed = 5,
                                                                                       .micro_batches = wanted.micro_batches});
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    step::Batch batch = global_batch(module.graph(), wanted.samples, step);
    const schedule::Range share = schedule::part(wanted.samples, comm.size(), comm.rank());
    batch.inputs = batch.inputs.narrow(0, share.begin, share.size()), batch.targets = batch.targets.narrow(0, share.begin, share.size());
    strategy->step(batch, {.step = step, .rate = 0.05});
  }
  return module.arena().parameters().clone();
}

}  // namespace

const std::vector<TrainingCase>& training_cases() {
  static const std::vector<TrainingCase> cases = {
      {.name = "plain"},
      {.name = "convolutions", .network = "lenet5", .samples = 12},
      {.name = "accumulated", .micro_batches = 3},
      {.name = "uneven", .samples = 23, .update = "whole"},
      {.name = "ragged", .samples = 3},
      {.name = "clipped", .clip_norm = 0.05},
      {.name = "sharded", .optimizer = "adamw", .update = "sharded"},
      {.name = "overlapped", .overlap = "on", .bucket_mb = 0.001},
      {.name = "overlapped_whole", .samples = 23, .update = "whole", .overlap = "on", .bucket_mb = 0.002},
      {.name = "adaptive", .optimizer = "lamb"},
  };
  return cases;
}

const std::vector<TrainingCase>& few_training_cases() {
  static const std::vector<TrainingCase> cases = {
      {.name = "plain", .update = "whole"},
      {.name = "sharded", .samples = 23, .update = "sharded"},
      {.name = "overlapped", .samples = 23, .micro_batches = 2, .update = "whole", .overlap = "on", .bucket_mb = 0.001},
      {.name = "clipped", .samples = 23, .clip_norm = 0.05},
  };
  return cases;
}

double difference_from_one_worker(comm::Communicator& comm, const TrainingCase& wanted, const std::string& algorithm) {
  WithAlgorithm workers(comm, algorithm);
  const at::Tensor together = train(workers, wanted, algorithm);
  const auto alone = std::move(comm::local_group(1).front());
  const at::Tensor reference = train(*alone, wanted, "auto");
  return ((together - reference).abs().max() / reference.abs().max()).item<double>();
}

}  // namespace paceline::conformance
