// The fused updates over ResNet-50's 161 tensors, against torch::optim on the same tensors and against the memory's measured speed.
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "benchmark.h"
#include "paceline/graph/registry.h"
#include "paceline/measure/memory_bandwidth.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/updater.h"

namespace paceline::bench {
namespace {

/// What an update must move: each stream is read or written once.
struct Streams {
  const char* optimizer;
  int count;
  const char* note;
};

constexpr Streams kStreams[] = {
    {"sgd", 5, "reads parameters, gradients, momentum; writes parameters, momentum"},
    {"adam", 7, "the same with two moments"},
};

optim::OptimConfig config_of(const std::string& name) {
  optim::OptimConfig config;
  config.name = name;
  config.rate = 1e-4;
  config.momentum = 0.9;
  config.weight_decay = 1e-4;
  config.decay_norms = true;  // torch::optim decays every tensor: the same work on both sides
  return config;
}

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const std::string& name, const std::vector<at::Tensor>& parameters) {
  if (name == "sgd")
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(1e-4).momentum(0.9).weight_decay(1e-4));
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-4).weight_decay(1e-4));
}

}  // namespace

std::vector<Row> bench_optim(const Options& options, const Say& say) {
  graph::ModelConfig model;
  model.network = "resnet50";
  nn::GraphModule module(graph::make_graph(model), {});
  module.arena().gradients().normal_(0, 1e-3);
  std::vector<at::Tensor> theirs;  // ordinary tensors of their own, as a LibTorch user has them
  for (const tensor::Entry& entry : module.arena().entries()) {
    theirs.push_back(at::randn(entry.shape).mul_(0.01).requires_grad_());
    theirs.back().mutable_grad() = at::randn(entry.shape).mul_(1e-3);
  }
  say("memory bandwidth");
  const double memory = measure::memory_bandwidth_gb_per_s();
  std::vector<Row> rows;
  for (const Streams& streams : kStreams) {
    step::Updater updater(module.arena(), config_of(streams.optimizer));
    const auto peer = torch_optimizer(streams.optimizer, theirs);
    std::int64_t step = 0;
    const auto update = [&] {
      updater.begin_step({.rate = 1e-4f, .step = ++step});
      updater.update_all();
    };
    const auto peer_update = [&] { peer->step(); };
    update(), peer_update();  // first touches
    std::vector<double> ours, others;
    for (int round = 0; round < options.rounds; ++round) {
      say(std::string(streams.optimizer) + ", round " + std::to_string(round + 1));
      ours.push_back(time_of(update));
      if (options.peer) others.push_back(time_of(peer_update));
    }
    const double seconds_ours = median(ours);
    const double bandwidth = streams.count * 4.0 * static_cast<double>(module.arena().count()) / seconds_ours / 1e9;
    Row row = {{"optimizer", streams.optimizer}, {"parameters", module.arena().count()},
               {"ms", seconds_ours * 1e3},       {"gb_per_s", bandwidth},
               {"memory_gb_per_s", memory},      {"share_of_memory", bandwidth / memory}};
    if (options.peer) {
      row["peer"] = "torch::optim";
      row["peer_ms"] = median(others) * 1e3;
      row["ratio"] = median(others) / seconds_ours;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace paceline::bench
