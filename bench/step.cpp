// One worker's training step (forward, loss, backward, update) against the same step in Python's PyTorch, in alternating rounds.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/strategy.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/memory_meter.h"
#include "paceline/tensor/recorded.h"
#include "peer.h"

namespace paceline::bench {
namespace {

/// The networks of the benchmark; bench/peers/pytorch_step.py writes the same down for PyTorch.
struct Step {
  const char* name;
  graph::ModelConfig model;
  std::int64_t batch;
  bool standard = true;  // measured where no networks are named: seconds on a CPU

  bool tokens() const { return model.network == "gpt"; }
};

graph::ModelConfig model_of(const std::string& network, std::vector<std::int64_t> input, std::int64_t classes) {
  graph::ModelConfig model;
  model.network = network;
  model.input = std::move(input);
  model.classes = classes;
  model.dropout = 0;
  return model;
}

/// GPT-2 with 124 million parameters; its vocabulary is rounded up to a multiple of 64.
graph::ModelConfig gpt2(std::int64_t context) {
  graph::ModelConfig model = model_of("gpt", {context}, 50304);
  model.layers = 12, model.width = 768, model.heads = 12, model.tied = true;
  return model;
}

const std::vector<Step>& cases() {
  static const std::vector<Step> all = {
      {"lenet5", model_of("lenet5", {1, 28, 28}, 10), 64},
      {"resnet18", model_of("resnet18", {3, 32, 32}, 10), 32},
      {"gpt", model_of("gpt", {128}, 65), 8},
      {"resnet50", model_of("resnet50", {3, 224, 224}, 1000), 256, false},
      {"gpt2", gpt2(1024), 16, false},
      {"gpt2_8192", gpt2(8192), 2, false},
  };
  return all;
}

std::string names_of_cases() {
  std::vector<std::string> names;
  for (const Step& item : cases()) names.emplace_back(item.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// A peer on the CPU is measured as it comes and with the convolution library that Paceline chose, and the faster one counts.
std::vector<std::string> modes_of(const Options& options) {
  const std::vector<std::string> known = options.device == "cpu" ? std::vector<std::string>{"eager", "eager-no-mkldnn", "compile"}
                                                                 : std::vector<std::string>{"eager", "graph", "compile"};
  if (options.against.empty()) return {known[0], known[1]};
  const std::vector<std::string> wanted = items_of(options.against);
  for (const std::string& mode : wanted)
    if (std::ranges::find(known, mode) == known.end())
      throw ConfigError(fmt::format("bench step --device {} has no --peer '{}'; it has {}", options.device, mode, fmt::join(known, ", ")));
  return wanted;
}

/// Seconds that a step of the peer takes, and which PyTorch it is.
nlohmann::json step_of_peer(const std::string& python, const Options& options, const Step& item, std::int64_t batch,
                            const std::string& mode) {
  return run_peer(python, "pytorch_step.py",
                  {"--network", item.name, "--batch", std::to_string(batch), "--threads", std::to_string(at::get_num_threads()), "--device",
                   options.device, "--precision", options.precision, "--mode", mode});
}

class Ours {
 public:
  Ours(const Options& options, const Step& item, std::int64_t batch) : device_(tensor::parse_device(options.device)), stream_(device_) {
    at::empty({1}, at::TensorOptions().device(device_));  // what the device's libraries take is not the step's
    const std::int64_t free_before = tensor::free_memory(device_);
    nn::GraphModule::Options made;
    made.device = device_;
    made.precision = tensor::parse_precision(options.precision, device_);
    module_ = std::make_shared<nn::GraphModule>(graph::make_graph(item.model), made);
    optim_.name = item.tokens() ? "adamw" : "sgd";
    optim_.rate = 1e-3;
    strategy_ = strategies::make_strategy(
        {{.name = "single"}}, {.model = *module_, .optim = optim_, .mesh = mesh_, .bus = bus_, .clock = clock_, .compress = compress_});
    std::vector<std::int64_t> shape = {batch};
    shape.insert(shape.end(), item.model.input.begin(), item.model.input.end());
    const bool tokens = item.tokens();
    const auto options_long = at::TensorOptions().dtype(at::kLong).device(device_);
    batch_.inputs = tokens ? at::randint(item.model.classes, shape, options_long) : at::randn(shape, at::TensorOptions().device(device_));
    batch_.targets = at::randint(item.model.classes, tokens ? shape : std::vector<std::int64_t>{batch}, options_long);
    for (int i = 0; i < 5; ++i) step();
    memory_ = free_before - tensor::free_memory(device_);
  }

  /// Bytes of a GPU's memory that the step holds; 0 on the CPU.
  std::int64_t memory() const { return memory_; }

  void step() { strategy_->step(batch_, {.step = ++step_, .rate = 1e-3}); }

  double seconds_a_step() {
    tensor::synchronize(device_);
    const int steps = device_.is_cuda() ? 20 : 1;
    const auto work = [&] {
      for (int i = 0; i < steps; ++i) step();
      tensor::synchronize(device_);
    };
    return time_of(work, 1.0) / steps;
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
  std::int64_t step_ = 0, memory_ = 0;
};

}  // namespace

std::vector<Row> bench_step(const Options& options, const Say& say) {
  std::vector<std::string> wanted = items_of(options.networks);
  std::vector<Row> rows;
  for (const std::string& name : wanted) {
    bool known = false;
    for (const Step& item : cases()) known = known || name == item.name;
    if (!known) throw ConfigError(fmt::format("bench step has no network '{}'; it has {}", name, names_of_cases()));
  }
  const std::string python = options.peer ? python_with_torch(options) : "";
  const std::vector<std::string> modes = options.peer ? modes_of(options) : std::vector<std::string>{};
  for (const Step& item : cases()) {
    if (wanted.empty() ? !item.standard : std::ranges::find(wanted, item.name) == wanted.end()) continue;
    const std::int64_t batch = options.batch > 0 ? options.batch : item.batch;
    Ours ours(options, item, batch);
    std::vector<double> own;
    std::map<std::string, std::vector<double>> peers;
    std::map<std::string, double> peer_memory;
    std::string version;
    for (int round = 0; round < options.rounds; ++round) {
      say(fmt::format("{}, round {} of {}", item.name, round + 1, options.rounds));
      own.push_back(ours.seconds_a_step());
      if (!options.peer) continue;
      for (const std::string& mode : modes) {
        const auto answer = step_of_peer(python, options, item, batch, mode);
        peers[mode].push_back(answer.at("seconds"));
        peer_memory[mode] = answer.at("memory_gb");
        version = answer.at("torch");
      }
    }
    const double mine = median(own), samples = static_cast<double>(batch);
    Row base = {
        {"network", item.name}, {"batch", batch}, {"precision", options.precision}, {"ms", mine * 1e3}, {"samples_per_s", samples / mine}};
    if (item.tokens()) base["tokens_per_s"] = samples * static_cast<double>(item.model.input[0]) / mine;
    if (ours.memory() > 0) base["memory_gb"] = static_cast<double>(ours.memory()) / 1e9;
    if (!options.peer) rows.push_back(base);
    for (const auto& [mode, times] : peers) {
      Row row = base;
      row["peer"] = fmt::format("PyTorch {} {}", version, mode);
      row["peer_samples_per_s"] = samples / median(times);
      row["ratio"] = median(times) / mine;
      if (ours.memory() > 0) row["peer_memory_gb"] = peer_memory[mode];
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace paceline::bench
