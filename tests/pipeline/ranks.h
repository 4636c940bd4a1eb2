// Ranks of a test: threads over the local engine in a mesh, each with its stage of a network and a strategy.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/graph/builder.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/stages.h"
#include "paceline/nn/graph_module.h"
#include "paceline/pipeline/pipeline_pass.h"
#include "paceline/strategies/registry.h"

namespace paceline::pipeline {

struct Trial {
  graph::Graph graph;
  comm::MeshSizes mesh = {.data = 1};
  std::string schedule = "1f1b";
  std::int64_t chunks = 0, micro_batches = 4, batch = 8;  // of each worker
  std::int64_t steps = 20;
  std::string optimizer = "sgd";
  double rate = 0.05;
  double deadline_s = 60;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();
};

/// By name: what all ranks of the first worker hold together.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters, statistics;
  double evaluated = 0;  // loss of a batch by the trained model
};

/// A network with as many units as any test needs; `cnn` and `residual` are narrow, and the latter has a skip connection in each unit.
inline graph::Graph network(const std::string& name, double dropout = 0) {
  graph::ModelConfig config;
  config.network = name == "gpt_tied" ? "gpt" : name, config.classes = 5, config.dropout = dropout, config.tied = name == "gpt_tied";
  if (name == "mlp") config.input = {1, 5, 5}, config.hidden = {24, 20, 16, 24, 20, 16, 12};
  if (name == "resnet18") config.input = {3, 32, 32}, config.multiplier = 0.125;
  if (name.starts_with("gpt")) config.input = {6}, config.layers = 6, config.width = 16, config.heads = 2;
  if (name != "cnn" && name != "residual") return graph::make_graph(config);
  graph::Builder net(name, {2, 8, 8}, 5);
  for (int block = 0; block < 8; ++block) {
    const std::string at = std::to_string(block);
    const int before = net.top();
    net.conv("conv" + at, 6, {.kernel = 3, .padding = 1, .bias = false}).bn("bn" + at);
    if (name == "residual" && block > 0) net.add(before);
    net.relu();
  }
  net.global_pool().flatten();
  if (dropout > 0) net.dropout(dropout);
  return net.fc("fc", 5).finish();
}

class Rank {
 public:
  Rank(comm::Communicator& comm, const Trial& trial)
      : trial_(trial), mesh_(comm, trial.mesh), module_(trial.graph, options()), context_(make_context()) {
    make_strategy();
  }

  /// Before the first step. Collective.
  void use_loss(std::shared_ptr<const nn::Loss> loss) {
    strategy_.reset();
    context_.loss = std::move(loss);
    make_strategy();
  }

  step::Batch batch(std::int64_t step) const {
    const int worker = mesh_.data().rank();
    std::vector<std::int64_t> shape = {trial_.batch};
    shape.insert(shape.end(), trial_.graph.input().begin(), trial_.graph.input().end());
    const std::int64_t count = at::empty(shape).numel(), place = step * 31 + worker;
    const at::Tensor wave = ((at::arange(count, at::kDouble) + static_cast<double>(613 * place)) * 0.731).sin() * 1.4;
    const bool tokens = trial_.graph.layers()[1].kind == graph::Kind::embedding;
    const std::int64_t targets = trial_.batch * (tokens ? trial_.graph.input()[0] : 1);
    const at::Tensor inputs = tokens ? (wave * 100).to(at::kLong).remainder(5).reshape(shape) : wave.to(at::kFloat).reshape(shape);
    const at::Tensor labels = at::remainder(at::arange(targets, at::kLong) * 3 + place, 5);
    return {inputs, tokens ? labels.reshape(shape) : labels, trial_.batch * mesh_.data().size()};
  }

  step::StepResult step(std::int64_t step) { return strategy_->step(batch(step), {.step = step, .rate = trial_.rate}); }

  /// After an error that the strategy outlives.
  void abandon() { strategy_->abandon(); }

  nn::GraphModule& module() { return module_; }
  const comm::Mesh& mesh() const { return mesh_; }
  const step::Context& context() const { return context_; }

 private:
  void make_strategy() {
    strategies::StrategyConfig config;
    config.name = mesh_.data().size() > 1 ? "allreduce" : "single";
    strategy_ = strategies::make_strategy({config}, context_);
  }
  nn::GraphModule::Options options() const {
    nn::GraphModule::Options made;
    made.seed = 3;
    made.allocate = data_parallel::allocate_from(mesh_.data());
    if (mesh_.pipeline().size() > 1) made.held = graph::held_by(stages(), mesh_.pipeline().size(), mesh_.pipeline().rank());
    return made;
  }
  std::vector<nn::Units> stages() const {
    const auto& row = find(schedule::pipelines(), "schedule", trial_.schedule);
    return graph::cut_stages(graph::counted_costs(trial_.graph),
                             {.ranks = mesh_.pipeline().size(), .chunks = schedule::resolve_chunks(row, trial_.chunks)});
  }
  step::Context make_context() {
    optim_.name = trial_.optimizer;
    return {.model = module_,
            .optim = optim_,
            .mesh = mesh_,
            .bus = bus_,
            .clock = *trial_.clock,
            .compress = compress_,
            .seed = 5,
            .micro_batches = trial_.micro_batches,
            .pipeline = {.schedule = trial_.schedule, .chunks = trial_.chunks, .stages = stages()}};
  }

  const Trial& trial_;
  comm::Mesh mesh_;
  nn::GraphModule module_;
  optim::OptimConfig optim_;
  compress::CompressConfig compress_;
  observe::Bus bus_;
  step::Context context_;
  std::unique_ptr<step::Strategy> strategy_;
};

/// Calls body(rank) in a thread for each; what each of them threw, by rank.
inline std::vector<std::exception_ptr> with_ranks(const Trial& trial, const std::function<void(Rank&)>& body) {
  comm::CommConfig config;
  config.deadline_s = trial.deadline_s;
  auto group = comm::local_group(trial.mesh.data * trial.mesh.pipeline * trial.mesh.tensor, config);
  std::vector<std::exception_ptr> problems(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank, comm = std::move(group[rank])] {
      at::set_num_threads(1);
      try {
        Rank self(*comm, trial);
        body(self);
      } catch (...) {
        problems[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return problems;
}

inline Trained train(const Trial& trial) {
  Trained result;
  std::mutex mutex;
  const auto problems = with_ranks(trial, [&](Rank& rank) {
    std::vector<double> losses;
    for (std::int64_t step = 1; step <= trial.steps; ++step) losses.push_back(rank.step(step).sums[0].item<double>());
    const auto pass = make_pass(rank.context());
    const double evaluated = pass->evaluate(rank.batch(0))[0].item<double>();
    const std::lock_guard lock(mutex);
    if (rank.mesh().data().rank() > 0) return;
    if (pass->scores()) result.losses = losses, result.evaluated = evaluated;
    tensor::Arena &arena = rank.module().arena(), &statistics = rank.module().statistics();
    for (std::size_t i = 0; i < arena.entries().size(); ++i) result.parameters[arena.entries()[i].name] = arena.parameter(i).clone();
    for (std::size_t i = 0; i < statistics.entries().size(); ++i)
      result.statistics[statistics.entries()[i].name] = statistics.parameter(i).clone();
  });
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
  return result;
}

}  // namespace paceline::pipeline
