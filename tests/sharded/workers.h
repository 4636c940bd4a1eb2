// Workers of these tests: threads over the local engine, each with a model whose parts the others hold, and the strategy that trains it.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/module_model.h"
#include "paceline/sharded/gathering_model.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"
#include "tests/sharded/spread_model.h"

namespace paceline::sharded {

struct Settings {
  std::string network = "mlp";  // of the registry, or "sequential", "one_unit": a user's modules, "spread": SpreadModel
  int stage = 0;
  std::int64_t micro_batches = 1, samples = 8;  // samples: of all workers together
  optim::OptimConfig optim = {.name = "adamw", .rate = 0.01, .epsilon = 1e-3};
  strategies::StrategyConfig strategy = {};
  tensor::Precision precision = tensor::Precision::fp32;
  c10::ScalarType storage = c10::kFloat;
  std::optional<c10::ScalarType> gradients = {};  // nothing: as storage
  std::int64_t layers = 2, width = 16;            // gpt
  std::int64_t experts = 0, experts_top = 1;
  bool bf16_gradients = false, offload = false;
};

/// A loss whose gradient overflows where it is told to.
struct Exploding final : nn::Loss {
  nn::Scored score(const at::Tensor& output, const at::Tensor& targets, double scale) const override {
    return softmax.score(output, targets, explodes ? scale * 1e9 : scale);
  }
  at::Tensor evaluate(const at::Tensor& output, const at::Tensor& targets) const override { return softmax.evaluate(output, targets); }
  nn::SoftmaxLoss softmax;
  bool explodes = false;
};

inline void initialise(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  double seed = 0.3;
  for (at::Tensor& parameter : module.parameters())
    parameter.copy_(((at::arange(parameter.numel(), at::kDouble) + 1) * (seed += 0.4)).sin().reshape(parameter.sizes()) * 0.3);
}

inline std::shared_ptr<nn::Model> users_module(const tensor::Allocate& allocate) {
  torch::nn::Sequential module(torch::nn::Linear(16, 23), torch::nn::Tanh(), torch::nn::Linear(23, 9), torch::nn::ReLU(),
                               torch::nn::Linear(9, 4));
  initialise(*module);
  return nn::model_of(module, allocate);
}

/// A user's module that lists no blocks: one unit, whose gradients are complete all at once.
struct OneUnitImpl final : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor hidden = first->forward(input).tanh();
    return last->forward(at::relu(middle->forward(hidden)) + skip->forward(hidden));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(16, 23));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(23, 9));
  torch::nn::Linear skip = register_module("skip", torch::nn::Linear(23, 9));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(9, 4));
};
inline std::shared_ptr<nn::Model> module_of_one_unit(const tensor::Allocate& allocate) {
  const auto module = std::make_shared<OneUnitImpl>();
  initialise(*module);
  return nn::model_of(module, allocate);
}

inline graph::ModelConfig model_of(const Settings& settings) {
  graph::ModelConfig config{.network = settings.network, .input = {3, 8, 8}, .classes = 4, .dropout = 0};
  if (settings.network == "mlp") config.input = {16}, config.hidden = {19, 31};
  if (settings.network == "gpt")
    config.input = {6}, config.classes = 11, config.layers = settings.layers, config.width = settings.width, config.heads = 2;
  if (settings.experts > 0) config.experts = settings.experts, config.experts_top = settings.experts_top, config.expert_capacity = 1;
  return config;
}

class Worker {
 public:
  Worker(comm::Communicator& comm, Settings settings) : comm_(comm), settings_(std::move(settings)) {
    const tensor::Allocate allocate = data_parallel::allocate_from(comm);
    if (settings_.network == "sequential") {
      model_ = users_module(allocate);
    } else if (settings_.network == "one_unit") {
      model_ = module_of_one_unit(allocate);
    } else if (settings_.network == "spread") {
      model_ = std::make_shared<SpreadModel>(comm, allocate);
    } else {
      nn::GraphModule::Options options;
      options.seed = 3, options.allocate = allocate, options.precision = settings_.precision, options.dtype = settings_.storage;
      options.gradient_dtype = settings_.gradients;
      if (settings_.experts > 0 && comm.size() > 1) options.data = &comm;
      model_ = std::make_shared<nn::GraphModule>(graph::make_graph(model_of(settings_)), options);
    }
    if (settings_.stage >= 2 && comm.size() > 1) model_ = std::make_shared<GatheringModel>(model_, comm, clock_, settings_.stage);
    settings_.strategy.name = strategies::resolve("auto", comm.size());
    strategy_ =
        strategies::make_strategy({settings_.strategy, {.zero = settings_.stage, .bf16_gradients = settings_.bf16_gradients}}, context());
  }

  step::Context context() {
    return {.model = *model_,
            .optim = settings_.optim,
            .mesh = mesh_,
            .bus = bus_,
            .clock = clock_,
            .compress = compress_,
            .seed = 5,
            .loss = loss_,
            .micro_batches = settings_.micro_batches,
            .offload = settings_.offload};
  }

  /// This worker's share of the samples of a step.
  step::Batch batch(std::int64_t step) const {
    const std::int64_t all = settings_.samples, first = all * comm_.rank() / comm_.size(),
                       count = all * (comm_.rank() + 1) / comm_.size() - first;
    const bool tokens = settings_.network == "gpt";
    std::vector<std::int64_t> shape = {all};
    const auto own = {"sequential", "one_unit", "spread"};
    const bool registered = std::ranges::find(own, settings_.network) == own.end();
    const auto input = registered ? model_of(settings_).input : std::vector<std::int64_t>{16};
    shape.insert(shape.end(), input.begin(), input.end());
    const std::int64_t values = at::empty(shape).numel();
    const at::Tensor wave = ((at::arange(values, at::kDouble) + static_cast<double>(613 * step)) * 0.731).sin();
    const at::Tensor inputs = tokens ? ((wave + 1) * 5).to(at::kLong).reshape(shape) : (wave * 1.4).to(at::kFloat).reshape(shape);
    at::Tensor labels = at::remainder(at::arange(tokens ? values : all, at::kLong) * 3 + step, 4);
    if (tokens) labels = labels.reshape(shape);
    return {inputs.narrow(0, first, count), labels.narrow(0, first, count), all};
  }

  /// Returns the sums of this worker's losses, by step.
  std::vector<double> train(std::int64_t last, std::int64_t first = 1) {
    std::vector<double> losses;
    for (std::int64_t step = first; step <= last; ++step) {
      const auto done = strategy_->step(batch(step), {.step = step, .rate = settings_.optim.rate});
      losses.push_back(done.sums[0].item<double>());
    }
    return losses;
  }

  /// A copy of all parameters. Collective.
  at::Tensor parameters() {
    auto* gathering = dynamic_cast<GatheringModel*>(model_.get());
    if (gathering) gathering->gather_all();
    at::Tensor values = model_->arena().parameters().clone();
    if (gathering) gathering->release_all();
    return values;
  }

  Exploding& loss() { return *loss_; }
  nn::Model& model() { return *model_; }
  step::Strategy& strategy() { return *strategy_; }
  comm::Communicator& comm() { return comm_; }

 private:
  comm::Communicator& comm_;
  comm::Mesh mesh_{comm_};
  Settings settings_;
  compress::CompressConfig compress_;
  SteadyClock clock_;
  observe::Bus bus_;
  std::shared_ptr<Exploding> loss_ = std::make_shared<Exploding>();
  std::shared_ptr<nn::Model> model_;
  std::unique_ptr<step::Strategy> strategy_;
};

/// Calls body(worker) in a thread for each of `size` workers; the workers leave together.
inline void with_workers(int size, const Settings& settings, const std::function<void(Worker&)>& body) {
  auto group = comm::local_group(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      tensor::configure_libtorch(c10::kCPU, settings.precision, /*threads=*/1, /*repeatable=*/true);
      Worker worker(*group[static_cast<std::size_t>(rank)], settings);
      body(worker);
    });
  for (std::thread& thread : threads) thread.join();
}

/// What training comes to: the losses of all samples by step, and the parameters; undefined where they differ among the workers.
struct Trained {
  std::vector<double> losses;
  at::Tensor parameters;
  std::int64_t skipped = 0;  // steps
};
inline Trained train_workers(int size, const Settings& settings, std::int64_t last, std::int64_t first = 1) {
  std::vector<std::vector<double>> losses(static_cast<std::size_t>(size));
  std::vector<at::Tensor> parameters(static_cast<std::size_t>(size));
  std::int64_t skipped = 0;
  with_workers(size, settings, [&](Worker& worker) {
    const auto rank = static_cast<std::size_t>(worker.comm().rank());
    losses[rank] = worker.train(last, first);
    parameters[rank] = worker.parameters();
    if (rank == 0) skipped = worker.strategy().skipped_steps();
  });
  Trained trained{losses[0], parameters[0], skipped};
  for (std::size_t rank = 1; rank < losses.size(); ++rank) {
    for (std::size_t step = 0; step < losses[rank].size(); ++step) trained.losses[step] += losses[rank][step];
    if (!at::equal(parameters[rank], parameters[0])) trained.parameters = at::Tensor();
  }
  return trained;
}

/// The largest difference as a share of the largest value.
inline double relative(const at::Tensor& values, const at::Tensor& expected) {
  const at::Tensor reference = expected.to(at::kDouble);
  return ((values.to(at::kDouble) - reference).abs().max() / reference.abs().max()).item<double>();
}

}  // namespace paceline::sharded
