// Workers that train together (one thread each) against PyTorch's DistributedDataParallel over Gloo, in alternating rounds: the same
// networks, batches, optimizer and cores. Efficiency is the rate of all workers over that of one alone, times their number.
//
// Ours are threads of this process (engine local) or processes (every other engine): those are started by `paceline run` as this very
// benchmark, which measures a worker of that world where it finds itself in one.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>

#include "benchmark.h"
#include "helpers.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/graph/registry.h"
#include "paceline/launch/capture.h"
#include "paceline/nn/graph_module.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"
#include "peer.h"

namespace paceline::bench {
namespace {

constexpr const char* kPeer = "pytorch_ddp";
constexpr double kMeasureSeconds = 1.5;
constexpr int kWarmUp = 40;  // steps: buckets are chosen by measurement in about 35
constexpr int kWarmUpAlone = 4;
constexpr const char* kPeerModes[] = {"default",
                                      "no-onednn"};  // as it comes; with the convolutions that Paceline chose where oneDNN is slow

/// The networks of the benchmark, for images of 3×32×32 in ten classes; bench/peers/pytorch_ddp.py writes the same down for PyTorch.
struct Scaling {
  std::string_view network;
  std::int64_t batch;  // of a worker
};
constexpr Scaling kCases[] = {{"mlp", 32}, {"cnn", 32}, {"resnet18", 8}};

graph::Graph graph_of(const Scaling& item) {
  graph::ModelConfig model;
  model.network = item.network;
  model.input = {3, 32, 32};
  model.classes = 10;
  if (item.network == "mlp") model.hidden = {2048, 2048};
  return graph::make_graph(model);
}

/// One worker of ours, in the thread that it computes in.
class Worker {
 public:
  Worker(const Scaling& item, std::int64_t batch, comm::Communicator& comm) : comm_(comm) {
    const c10::Device cpu = tensor::parse_device("cpu");
    tensor::configure_libtorch(cpu, tensor::Precision::fp32, 1, false);
    nn::GraphModule::Options made;
    made.allocate = data_parallel::allocate_from(comm);
    module_ = std::make_shared<nn::GraphModule>(graph_of(item), made);
    data_parallel::equalise(comm, *module_);
    optim_.name = "sgd", optim_.momentum = 0.9, optim_.rate = kRate;
    strategy_ =
        strategies::make_strategy({{.name = strategies::resolve("auto", comm.size())}},
                                  {.model = *module_, .optim = optim_, .mesh = mesh_, .bus = bus_, .clock = clock_, .compress = compress_});
    batch_.inputs = at::randn({batch, 3, 32, 32});
    batch_.targets = at::randint(10, {batch}, at::kLong);
    batch_.global_samples = batch * comm.size();
  }

  /// Seconds that a step takes, warm. All workers at once.
  double measure() {
    seconds_of(comm_.size() > 1 ? kWarmUp : kWarmUpAlone);
    std::vector<double> steps = {std::max(4.0, kMeasureSeconds / seconds_of(2))};
    comm_.run(comm::broadcast(steps));  // all make the same number
    return seconds_of(static_cast<int>(steps.front()));
  }

 private:
  static constexpr double kRate = 1e-3;

  double seconds_of(int steps) {
    const Nanoseconds began = clock_.now();
    for (int i = 0; i < steps; ++i) strategy_->step(batch_, {.step = ++step_, .rate = kRate});
    return seconds(clock_.now() - began) / steps;
  }

  comm::Communicator& comm_;
  comm::Mesh mesh_{comm_};
  SteadyClock clock_;
  observe::Bus bus_;
  compress::CompressConfig compress_;
  optim::OptimConfig optim_;
  std::shared_ptr<nn::GraphModule> module_;
  std::unique_ptr<step::Strategy> strategy_;
  step::Batch batch_;
  std::int64_t step_ = 0;
};

/// Plays the worker of `comm`, on its own part of the cores.
double play(const Scaling& item, std::int64_t batch, std::unique_ptr<comm::Communicator> comm, int index, int parts) {
  const OwnCores cores(index, parts);
  return Worker(item, batch, *comm).measure();
}

double seconds_of_threads(const Scaling& item, std::int64_t batch, int workers, int parts) {
  auto comms = comm::local_group(workers);
  std::vector<std::future<double>> times;
  times.reserve(comms.size());
  for (int i = 0; i < workers; ++i)
    times.push_back(std::async(std::launch::async, play, item, batch, std::move(comms[static_cast<std::size_t>(i)]), i, parts));
  double slowest = 0;
  for (auto& time : times) slowest = std::max(slowest, time.get());
  return slowest;
}

/// This very benchmark, once for each rank; rank 0 tells.
double seconds_of_processes(const Scaling& item, std::int64_t batch, int workers, const std::string& engine) {
  const std::string paceline = main_program();
  const launch::Captured ranks =
      launch::capture({paceline, "run", "--only-rank-output", "0", "-n", std::to_string(workers), paceline, "bench", "train", "--networks",
                       std::string(item.network), "--batch", std::to_string(batch), "--engines", engine, "--no-peer", "--json"});
  if (!ranks.exit.good()) throw Error(fmt::format("{} workers over {}: {}", workers, engine, ranks.complaint()));
  return nlohmann::json::parse(ranks.out).at("rows").at(0).at("seconds");
}

/// What a rank of seconds_of_processes() does.
std::vector<Row> measure_as_rank(const comm::World& world, const Scaling& item, std::int64_t batch, const std::string& engine) {
  comm::CommConfig config;
  config.engine = engine;
  auto comm = comm::connect(config, world);
  const auto [part, parts] = world.part_of_cores();
  return {{{"seconds", play(item, batch, std::move(comm), part, parts)}}};
}

std::int64_t batch_of(const Options& options, const Scaling& item) { return options.batch > 0 ? options.batch : item.batch; }

std::vector<Scaling> cases_of(const Options& options) {
  std::vector<std::string_view> names;
  for (const Scaling& item : kCases) names.push_back(item.network);
  std::vector<Scaling> wanted;
  for (const std::string& name : items_of(options.networks)) {
    const auto found = std::ranges::find(kCases, name, &Scaling::network);
    if (found == std::end(kCases)) throw ConfigError(unknown_message("network of bench train", name, names));
    wanted.push_back(*found);
  }
  return wanted.empty() ? std::vector<Scaling>(std::begin(kCases), std::end(kCases)) : wanted;
}

/// Times by side: an engine or a mode of the peer, and the number of workers.
using SideTimes = std::map<std::pair<std::string, int>, std::vector<double>>;

void measure_round(SideTimes& times, const Options& options, const Scaling& item, const std::string& python, std::string& version) {
  const std::int64_t batch = batch_of(options, item);
  const int workers = options.ranks;
  times[{"local", 1}].push_back(seconds_of_threads(item, batch, 1, workers));
  for (const std::string& engine : items_of(options.engines))
    times[{engine, workers}].push_back(engine == "local" ? seconds_of_threads(item, batch, workers, workers)
                                                         : seconds_of_processes(item, batch, workers, engine));
  if (!options.peer) return;
  for (const char* mode : kPeerModes)
    for (const int number : {1, workers}) {
      const auto answer = run_peer(python, std::string(kPeer) + ".py",
                                   {"--network", std::string(item.network), "--batch", std::to_string(batch), "--workers",
                                    std::to_string(number), "--mode", mode, "--seconds", fmt::format("{}", kMeasureSeconds)});
      times[{mode, number}].push_back(answer.at("seconds"));
      version = answer.at("torch");
    }
}

std::vector<Row> rows_of(const SideTimes& times, const Options& options, const Scaling& item, const std::string& version) {
  const std::int64_t batch = batch_of(options, item);
  const int workers = options.ranks;
  const auto rate = [&](const std::string& side, int number) {
    return static_cast<double>(batch * number) / median(times.at({side, number}));
  };
  std::vector<Row> rows;
  for (const std::string& engine : items_of(options.engines)) {
    const double ours = rate(engine, workers);
    const Row row = {{"network", item.network},
                     {"workers", workers},
                     {"batch", batch},
                     {"parameters", graph_of(item).parameter_count()},
                     {"engine", engine},
                     {"ours_samples_per_s", ours},
                     {"efficiency", ours / (workers * rate("local", 1))}};
    if (!options.peer) rows.push_back(row);
    for (const char* mode : kPeerModes) {
      if (!options.peer) break;
      const double peer = rate(mode, workers);
      Row& compared = rows.emplace_back(row);
      compared["peer"] = fmt::format("PyTorch {} DDP {}", version, mode);
      compared["peer_samples_per_s"] = peer;
      compared["peer_efficiency"] = peer / (workers * rate(mode, 1));
      compared["ratio"] = ours / peer;
    }
  }
  return rows;
}

}  // namespace

std::vector<Row> bench_train(const Options& options, const Say& say) {
  if (!options.against.empty() && options.against != kPeer)
    throw ConfigError(unknown_message("peer of bench train", options.against, std::vector<std::string_view>{kPeer}));
  const std::vector<std::string> engines = items_of(options.engines);
  for (const std::string& engine : engines) comm::engine_of(engine);
  const std::vector<Scaling> cases = cases_of(options);
  if (const comm::World world = comm::discover(); world.size > 1) {
    if (cases.size() != 1 || engines.size() != 1)
      throw ConfigError("bench train under a launcher measures one network over one engine; name one in --networks and one in --engines");
    return measure_as_rank(world, cases.front(), batch_of(options, cases.front()), engines.front());
  }
  const std::string python = options.peer ? python_with_torch(options) : "";
  std::vector<Row> rows;
  for (const Scaling& item : cases) {
    SideTimes times;
    std::string version;
    for (int round = 0; round < options.rounds; ++round) {
      say(fmt::format("{}, round {} of {}", item.network, round + 1, options.rounds));
      measure_round(times, options, item, python, version);
    }
    for (Row& row : rows_of(times, options, item, version)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace paceline::bench
