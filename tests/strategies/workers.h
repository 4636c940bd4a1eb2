// Workers of a test: threads over the local engine, each with a perceptron and a strategy.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/arena_rows.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/boxes.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/recorded.h"

namespace paceline::strategies {

struct Settings {
  StrategyConfig strategy;
  optim::OptimConfig optim;
  std::string compression = "none";
  compress::CompressConfig compress;
  std::string network = "mlp";
  std::vector<std::int64_t> hidden = {19};
  comm::CommConfig comm = {};
  central::Settings servers = {};  // of strategies with a parameter server
  c10::Device device{c10::kCPU};
};

/// What a checkpoint keeps: the agreed parameters and the strategy's state.
struct Saved {
  at::Tensor parameters;
  std::vector<step::NamedTensor> state;
  at::Tensor operator[](const std::string& name) const { return step::saved_or_none(state, name); }
};

class TestWorker {
 public:
  TestWorker(comm::Communicator& comm, const Settings& settings)
      : comm_(comm), settings_(settings), module_(graph(), options(comm, settings.device)) {
    settings_.strategy.name = resolve(settings_.strategy.name, comm.size());
    strategy_ = make_strategy({settings_.strategy, {}, settings_.servers}, {.model = module_,
                                                                            .optim = settings_.optim,
                                                                            .mesh = mesh_,
                                                                            .bus = bus_,
                                                                            .clock = clock_,
                                                                            .compress = settings_.compress,
                                                                            .compression = settings_.compression,
                                                                            .seed = 5});
  }

  /// A batch that only this step and this worker see; `samples` of each worker.
  step::Batch batch(std::int64_t step, std::int64_t samples = 6) {
    std::vector<std::int64_t> shape = {samples};
    shape.insert(shape.end(), module_.graph().input().begin(), module_.graph().input().end());
    const std::int64_t count = at::empty(shape).numel(), place = step * 31 + comm_.rank();
    const at::Tensor values = ((at::arange(count, at::kDouble) + static_cast<double>(613 * place)) * 0.731).sin() * 1.4;
    return {values.to(settings_.device, at::kFloat).reshape(shape),
            at::remainder(at::arange(samples, at::kLong) * 3 + place, 4).to(settings_.device), samples * comm_.size()};
  }

  void train(std::int64_t first, std::int64_t last, double rate = 0.1) {
    for (std::int64_t step = first; step <= last; ++step)
      strategy_->step(batch(step), {.step = step, .rate = rate, .epoch = 0.1 * static_cast<double>(step)});
  }

  void resume(const Saved& saved) {
    parameters().copy_(saved.parameters);
    strategy_->load(saved.state);
  }

  at::Tensor parameters() { return module_.arena().parameters(); }
  at::Tensor agreed() {
    strategy_->agree();
    at::Tensor result = parameters().clone();
    strategy_->resume_training();
    return result;
  }
  nn::GraphModule& module() { return module_; }
  step::Strategy& strategy() { return *strategy_; }
  comm::Communicator& comm() { return comm_; }

 private:
  graph::Graph graph() const {
    graph::ModelConfig config;
    config.network = settings_.network;
    if (settings_.network == "mlp") config.input = {1, 5, 5}, config.hidden = settings_.hidden;
    else config.input = {3, 32, 32};
    config.classes = 4;
    return graph::make_graph(config);
  }
  static nn::GraphModule::Options options(comm::Communicator& comm, c10::Device device) {
    nn::GraphModule::Options made;
    made.seed = 3;
    made.device = device;
    if (device.is_cpu()) made.allocate = data_parallel::allocate_from(comm);
    return made;
  }

  comm::Communicator& comm_;
  comm::Mesh mesh_{comm_};
  Settings settings_;
  tensor::OwnStream stream_{settings_.device};
  nn::GraphModule module_;
  observe::Bus bus_;
  SteadyClock clock_;
  std::unique_ptr<step::Strategy> strategy_;
};

/// What every worker shows of its state, by rank.
using Shown = std::vector<std::vector<step::NamedTensor>>;

/// Called by every worker: its state is kept as it is now.
inline void show_state(TestWorker& worker, Shown& shown) {
  auto& mine = shown[static_cast<std::size_t>(worker.comm().rank())];
  mine = worker.strategy().save();
  for (step::NamedTensor& item : mine) item.tensor = item.tensor.clone();
}

/// What a checkpoint has of that: what all have alike once, and everybody's rows.
inline std::vector<step::NamedTensor> merged(const Shown& shown) {
  std::vector<step::NamedTensor> all;
  for (const step::NamedTensor& item : shown.front()) {
    if (!all.empty() && all.back().name == item.name) continue;
    if (!item.box) all.push_back(item);
    else
      for (const auto& state : shown)
        for (const step::NamedTensor& other : state)
          if (other.name == item.name) all.push_back(other);
  }
  return all;
}

/// Calls body(worker) in a thread for each of `size` workers; the workers leave together.
inline void with_workers(int size, const Settings& settings, const std::function<void(TestWorker&)>& body) {
  auto group = comm::local_group(size, settings.comm);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      TestWorker worker(*group[static_cast<std::size_t>(rank)], settings);
      body(worker);
    });
  for (std::thread& thread : threads) thread.join();
}

/// The rows that a checkpoint has of `name`, [workers, length] as in the arena; undefined if it has none.
inline at::Tensor flat_rows(std::span<const step::NamedTensor> state, const std::string& name, const Settings& settings = {}) {
  at::Tensor rows;
  with_workers(1, settings, [&](TestWorker& worker) {
    const tensor::Arena& arena = worker.module().arena();
    const auto count = data_parallel::saved_arena_rows(arena, state, name);
    if (!count) return;
    rows = at::zeros({*count, arena.length()});
    for (std::int64_t row = 0; row < *count; ++row) step::fill(data_parallel::arena_rows(arena, name, rows[row], row, *count), state);
  });
  return rows;
}

/// The agreed parameters after `steps` steps, and every worker's own.
struct Trained {
  at::Tensor agreed;
  std::vector<at::Tensor> own;
};
inline Trained train_workers(int size, const Settings& settings, std::int64_t steps) {
  Trained result;
  result.own.resize(static_cast<std::size_t>(size));
  with_workers(size, settings, [&](TestWorker& worker) {
    worker.train(1, steps);
    const at::Tensor agreed = worker.agreed();
    result.own[static_cast<std::size_t>(worker.comm().rank())] = worker.parameters().clone();
    if (worker.comm().rank() == 0) result.agreed = agreed;
  });
  return result;
}

/// What a checkpoint keeps after `steps` steps, from the beginning or from another checkpoint.
inline Saved saved_after(int size, const Settings& settings, const Saved* resumed = nullptr, std::int64_t steps = 3) {
  Saved result;
  Shown shown(static_cast<std::size_t>(size));
  with_workers(size, settings, [&](TestWorker& worker) {
    if (resumed) worker.resume(*resumed);
    worker.train(1, steps);
    worker.strategy().agree();
    show_state(worker, shown);
    if (worker.comm().rank() == 0) result.parameters = worker.parameters().clone();
    worker.strategy().resume_training();
  });
  result.state = merged(shown);
  return result;
}

/// What `size` workers reach that never meet: what meetings are computed from by hand.
inline std::vector<at::Tensor> train_apart(int size, Settings settings, std::int64_t steps) {
  settings.strategy.name = "local_sgd", settings.strategy.period = 1'000'000;
  return train_workers(size, settings, steps).own;
}

}  // namespace paceline::strategies
