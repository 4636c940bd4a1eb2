// One worker's training step (forward, loss, backward, update) against the same step in Python's PyTorch, in alternating rounds.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/strategy.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"
#include "peer.h"

namespace paceline::bench {
namespace {

/// The networks of the benchmark; bench/peers/pytorch_step.py writes the same down for PyTorch.
struct Step {
  const char* network;
  std::vector<std::int64_t> input;
  std::int64_t classes, batch;
};

const std::vector<Step>& cases() {
  static const std::vector<Step> all = {
      {"lenet5", {1, 28, 28}, 10, 64},
      {"resnet18", {3, 32, 32}, 10, 32},
      {"gpt", {128}, 65, 8},
  };
  return all;
}

graph::ModelConfig model_of(const Step& item) {
  graph::ModelConfig model;
  model.network = item.network;
  model.input = item.input;
  model.classes = item.classes;
  model.dropout = 0;
  return model;
}

/// Seconds that a step of the peer takes, and which PyTorch it is.
nlohmann::json step_of_peer(const std::string& python, const Options& options, const Step& item, std::int64_t batch,
                            const std::string& mode) {
  return run_peer(python, "pytorch_step.py",
                  {"--network", item.network, "--batch", std::to_string(batch), "--threads", std::to_string(at::get_num_threads()),
                   "--device", options.device, "--precision", options.precision, "--mode", mode});
}

class Ours {
 public:
  Ours(const Options& options, const Step& item, std::int64_t batch) : device_(tensor::parse_device(options.device)), stream_(device_) {
    nn::GraphModule::Options made;
    made.device = device_;
    made.precision = tensor::parse_precision(options.precision, device_);
    module_ = std::make_shared<nn::GraphModule>(graph::make_graph(model_of(item)), made);
    optim_.name = item.network == std::string("gpt") ? "adamw" : "sgd";
    optim_.rate = 1e-3;
    strategy_ = strategies::make_strategy(
        {.name = "single"}, {.model = *module_, .optim = optim_, .mesh = mesh_, .bus = bus_, .clock = clock_, .compress = compress_});
    std::vector<std::int64_t> shape = {batch};
    shape.insert(shape.end(), item.input.begin(), item.input.end());
    const bool tokens = item.input.size() == 1;
    const auto options_long = at::TensorOptions().dtype(at::kLong).device(device_);
    batch_.inputs = tokens ? at::randint(item.classes, shape, options_long) : at::randn(shape, at::TensorOptions().device(device_));
    batch_.targets = at::randint(item.classes, tokens ? shape : std::vector<std::int64_t>{batch}, options_long);
    for (int i = 0; i < 5; ++i) step();
  }

  void step() { strategy_->step(batch_, {.step = ++step_, .rate = 1e-3}); }

  double seconds_a_step() {
    tensor::synchronize(device_);
    return time_of(
               [this] {
                 for (int i = 0; i < (device_.is_cuda() ? 50 : 1); ++i) step();
                 tensor::synchronize(device_);
               },
               1.0) /
           (device_.is_cuda() ? 50 : 1);
  }

 private:
  c10::Device device_;
  tensor::OwnStream stream_;
  SteadyClock clock_;
  observe::Bus bus_;
  std::unique_ptr<comm::Communicator> comm_ = std::move(comm::local_group(1).front());
  comm::Mesh mesh_{*comm_};
  compress::CompressConfig compress_;
  optim::OptimConfig optim_;
  std::shared_ptr<nn::GraphModule> module_;
  std::unique_ptr<step::Strategy> strategy_;
  step::Batch batch_;
  std::int64_t step_ = 0;
};

}  // namespace

std::vector<Row> bench_step(const Options& options, const Say& say) {
  std::vector<std::string> wanted = items_of(options.networks);
  std::vector<Row> rows;
  for (const std::string& name : wanted) {
    bool known = false;
    for (const Step& item : cases()) known = known || name == item.network;
    if (!known) throw ConfigError(fmt::format("bench step has no network '{}'; it has lenet5, resnet18 and gpt", name));
  }
  const std::string python = options.peer ? python_with_torch(options) : "";
  // A peer on the CPU is measured as it comes and with the convolution library that Paceline chose, and the faster one counts.
  const std::vector<std::string> modes =
      options.device == "cpu" ? std::vector<std::string>{"eager", "eager-no-mkldnn"} : std::vector<std::string>{"eager", "graph"};
  for (const Step& item : cases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), item.network) == wanted.end()) continue;
    const std::int64_t batch = options.batch > 0 ? options.batch : item.batch;
    Ours ours(options, item, batch);
    std::vector<double> own;
    std::map<std::string, std::vector<double>> peers;
    std::string version;
    for (int round = 0; round < options.rounds; ++round) {
      say(fmt::format("{}, round {} of {}", item.network, round + 1, options.rounds));
      own.push_back(ours.seconds_a_step());
      if (!options.peer) continue;
      for (const std::string& mode : modes) {
        const auto answer = step_of_peer(python, options, item, batch, mode);
        peers[mode].push_back(answer.at("seconds"));
        version = answer.at("torch");
      }
    }
    const double mine = median(own), samples = static_cast<double>(batch);
    const Row base = {{"network", item.network},
                      {"batch", batch},
                      {"precision", options.precision},
                      {"ms", mine * 1e3},
                      {"samples_per_s", samples / mine}};
    if (!options.peer) rows.push_back(base);
    for (const auto& [mode, times] : peers) {
      Row row = base;
      row["peer"] = fmt::format("PyTorch {} {}", version, mode);
      row["peer_samples_per_s"] = samples / median(times);
      row["ratio"] = median(times) / mine;
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace paceline::bench
