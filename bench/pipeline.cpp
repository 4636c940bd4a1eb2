// Pipelines by the clock. First with layers that wait instead of computing, so that any number of ranks shares two cores: how long ranks
// idle, beside the schedule's formula. Then with real layers: two stages in two threads against one worker in one thread, with the same
// micro-batches; one step each, in alternating rounds, medians.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <map>
#include <numeric>
#include <span>
#include <thread>

#include "benchmark.h"
#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/pipeline/costs.h"
#include "paceline/pipeline/pipeline_pass.h"

namespace paceline::bench {
namespace {

using ScheduleRow = Entry<schedule::PipelineSchedule>;

/// A model whose units sleep, and count how long they slept.
class WaitingModel final : public nn::Model {
 public:
  WaitingModel(std::size_t units, Nanoseconds part) : part_(part) {
    std::vector<tensor::Spec> specs;
    for (std::size_t unit = 0; unit < units; ++unit) {
      specs.push_back({fmt::format("unit{}", unit), {1}});
      units_.push_back({.name = specs.back().name, .first_entry = unit, .last_entry = unit + 1});
    }
    tensor::Arena::Options options;
    arena_ = std::make_unique<tensor::Arena>(specs, options);
    options.gradients = false;
    statistics_ = std::make_unique<tensor::Arena>(std::vector<tensor::Spec>{}, options);
  }

  nn::Tensors run(nn::Units range, nn::Tensors inputs, const nn::Pass&, nn::Trace*) override { return wait(range), std::move(inputs); }
  nn::Tensors back(nn::Units range, nn::Tensors gradients, const nn::Pass&, nn::Trace&, const nn::Wanted& wanted,
                   const nn::GradientReady&) override {
    wait(range);
    if (wanted.weights) wait(range);
    return gradients;
  }
  void weight_gradients(nn::Units range, const nn::Pass&, nn::Trace&, const nn::GradientReady&) override { wait(range); }

  double busy_s() const { return seconds(busy_); }

  std::shared_ptr<Model> another() const override { return std::make_shared<WaitingModel>(units_.size(), part_); }
  const std::vector<nn::Unit>& units() const override { return units_; }
  tensor::Arena& arena() override { return *arena_; }
  tensor::Arena& statistics() override { return *statistics_; }
  double statistics_momentum(std::size_t) const override { return 0; }
  const c10::Device& device() const override { return device_; }
  tensor::Precision precision() const override { return tensor::Precision::fp32; }
  bool uses_chance() const override { return false; }
  bool takes_masks() const override { return false; }
  bool recordable() const override { return false; }
  std::vector<nn::Part> parts() const override { return {}; }
  void walk(const at::Tensor&, const nn::Pass&, const nn::Visit&) override {}
  void refresh() override {}
  void take_back() override {}

 private:
  void wait(nn::Units range) {
    const Nanoseconds began = clock_.now();
    std::this_thread::sleep_for(part_ * (range.last - range.first));
    busy_ += clock_.now() - began;
  }

  SteadyClock clock_;
  Nanoseconds part_, busy_{0};
  std::vector<nn::Unit> units_;
  std::unique_ptr<tensor::Arena> arena_, statistics_;
  c10::Device device_{c10::kCPU};
};

/// A loss that costs nothing.
class NoLoss final : public nn::Loss {
 public:
  nn::Scored score(const at::Tensor& output, const at::Tensor&, double) const override { return {at::zeros({2}, at::kDouble), output}; }
  at::Tensor evaluate(const at::Tensor&, const at::Tensor&) const override { return at::zeros({2}, at::kDouble); }
};

/// What one rank of a pipeline works with.
struct PipelineRank {
  std::string schedule = "1f1b";
  std::int64_t micro_batches = 1;
  std::shared_ptr<const nn::Loss> loss = std::make_shared<nn::SoftmaxLoss>();
  std::vector<nn::Units> stages = {};
};

std::vector<nn::Units> stages_of(const std::vector<graph::UnitCost>& costs, const ScheduleRow& row, int ranks) {
  if (ranks == 1) return {};
  return graph::cut_stages(costs, {.ranks = ranks, .chunks = schedule::resolve_chunks(row, 0)});
}

/// A pass over a batch: when each rank began it, behind a barrier, when it was done, and how long it computed, where the model says so.
struct PassTimes {
  std::vector<Nanoseconds> began, ended;  // by rank
  std::vector<double> busy_s;             // by rank
  double makespan_s() const { return seconds(*std::ranges::max_element(ended) - *std::ranges::min_element(began)); }
  /// The share of the makespan that ranks idle.
  double bubble() const {
    return 1 - std::accumulate(busy_s.begin(), busy_s.end(), 0.0) / (makespan_s() * static_cast<double>(busy_s.size()));
  }
};

/// Makes `passes` passes on each rank; the times of each of them.
std::vector<PassTimes> time_passes(int ranks, int passes, const PipelineRank& settings, const step::Batch& batch,
                                   const std::function<std::shared_ptr<nn::Model>(const comm::Mesh&)>& make) {
  auto group = comm::local_group(ranks);
  const auto size = group.size();
  std::vector<PassTimes> times(static_cast<std::size_t>(passes),
                               {std::vector<Nanoseconds>(size), std::vector<Nanoseconds>(size), std::vector<double>(size)});
  const auto work = [&](std::size_t rank) {
    tensor::configure_libtorch(c10::Device(c10::kCPU), tensor::Precision::fp32, /*threads=*/1, /*repeatable=*/false);  // OpenBLAS too
    const comm::Mesh mesh(*group[rank], {.data = 1, .pipeline = ranks});
    const std::shared_ptr<nn::Model> model = make(mesh);
    const auto* waiting = dynamic_cast<const WaitingModel*>(model.get());
    const optim::OptimConfig optim;
    const compress::CompressConfig compress;
    observe::Bus bus;
    const SteadyClock clock;
    const step::Context context{.model = *model,
                                .optim = optim,
                                .mesh = mesh,
                                .bus = bus,
                                .clock = clock,
                                .compress = compress,
                                .loss = settings.loss,
                                .micro_batches = settings.micro_batches,
                                .pipeline = {.schedule = settings.schedule, .stages = settings.stages}};
    const auto pass = pipeline::make_pass(context);
    std::int64_t step = 0;
    for (PassTimes& each : times) {
      const double busy_before = waiting ? waiting->busy_s() : 0;
      group[rank]->run(comm::barrier());
      pass->begin_step(++step);
      each.began[rank] = clock.now();
      pass->run(batch, 1);
      each.ended[rank] = clock.now();
      each.busy_s[rank] = waiting ? waiting->busy_s() - busy_before : 0;
    }
    group[rank]->run(comm::barrier());
  };
  std::vector<std::future<void>> threads;
  for (std::size_t rank = 0; rank < size; ++rank) threads.push_back(std::async(std::launch::async, work, rank));
  for (auto& thread : threads) thread.get();
  return times;
}

// Layers that wait
// ---------------------------------------------------------------------------------------------------------------------------------------

Row waiting_row(const ScheduleRow& row, int stages, const Options& options) {
  constexpr Nanoseconds kPart = std::chrono::milliseconds(20);  // of each of the three passes of a micro-batch on a rank
  const int chunks = row.make.interleaved ? 2 : 1, micro_batches = 2 * stages;
  const schedule::PipelineProblem problem{.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
  const step::Batch batch{at::zeros({micro_batches, 64}), at::zeros({micro_batches}, at::kLong), micro_batches};
  const auto make = [&] { return std::make_shared<WaitingModel>(static_cast<std::size_t>(problem.virtual_stages()), kPart / chunks); };
  const PipelineRank rank{std::string(row.key), micro_batches, std::make_shared<NoLoss>(),
                          stages_of(pipeline::counted_costs(*make()), row, stages)};
  const auto times = time_passes(stages, options.rounds + 1, rank, batch, [&](const comm::Mesh&) { return make(); });
  std::vector<double> makespans, bubbles;
  for (const PassTimes& each : std::span(times).subspan(1)) {  // the first announces what crosses the borders
    makespans.push_back(each.makespan_s()), bubbles.push_back(each.bubble());
  }
  const double makespan_s = median(makespans), bubble = median(bubbles), formula = bubble_share(row.make, problem, {});
  return {{"layers", "waiting"},         {"schedule", row.key}, {"stages", stages},   {"micro_batches", micro_batches},
          {"step_ms", makespan_s * 1e3}, {"bubble", bubble},    {"formula", formula}, {"off", bubble / formula - 1}};
}

// Real layers
// ---------------------------------------------------------------------------------------------------------------------------------------

struct PipelineNetwork {
  std::string name;
  graph::ModelConfig config;
  std::int64_t batch;
};

std::vector<PipelineNetwork> pipeline_networks() {
  graph::ModelConfig mlp, gpt;
  mlp.network = "mlp", mlp.input = {1, 32, 32}, mlp.classes = 1024, mlp.hidden = std::vector<std::int64_t>(9, 1024);
  gpt.network = "gpt", gpt.input = {128}, gpt.classes = 256, gpt.layers = 8, gpt.width = 192, gpt.heads = 4;
  return {{"mlp", mlp, 512}, {"gpt", gpt, 16}};
}

step::Batch pipeline_batch(const graph::Graph& graph, std::int64_t samples) {
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), samples);
  const bool tokens = graph.layers()[1].kind == graph::Kind::embedding;
  const at::Tensor inputs = tokens ? at::randint(graph.classes(), shape, at::kLong) : at::randn(shape);
  return {inputs, tokens ? at::randint(graph.classes(), shape, at::kLong) : at::randint(graph.classes(), {samples}, at::kLong), samples};
}

std::vector<Row> real_rows(const PipelineNetwork& network, const Options& options, const Say& say) {
  constexpr int kStages = 2, kMicroBatches = 8;
  const graph::Graph graph = graph::make_graph(network.config);
  const step::Batch batch = pipeline_batch(graph, options.batch > 0 ? options.batch : network.batch);
  const auto measure = [&](const std::string& schedule, int ranks) {
    const auto stages = stages_of(graph::counted_costs(graph), find(schedule::pipelines(), "schedule", schedule), ranks);
    const auto make = [&](const comm::Mesh& mesh) {
      nn::GraphModule::Options made;
      made.held = graph::held_by(stages, ranks, mesh.pipeline().rank());
      return std::make_shared<nn::GraphModule>(graph, made);
    };
    const auto times = time_passes(ranks, 2, {.schedule = schedule, .micro_batches = kMicroBatches, .stages = stages}, batch, make);
    return times.back().makespan_s();  // the first announces what crosses the borders
  };
  std::vector<double> alone;
  std::map<std::string_view, std::vector<double>> together;
  for (int round = 0; round < options.rounds; ++round) {
    say(fmt::format("{}, round {} of {}", network.name, round + 1, options.rounds));
    alone.push_back(measure("1f1b", 1));
    for (const ScheduleRow& row : schedule::pipelines()) together[row.key].push_back(measure(std::string(row.key), kStages));
  }
  std::vector<Row> rows;
  for (const ScheduleRow& row : schedule::pipelines()) {
    const schedule::PipelineProblem problem{.stages = kStages, .micro_batches = kMicroBatches, .chunks = row.make.interleaved ? 2 : 1};
    rows.push_back({{"layers", network.name},
                    {"schedule", row.key},
                    {"stages", kStages},
                    {"micro_batches", kMicroBatches},
                    {"step_ms", median(together[row.key]) * 1e3},
                    {"one_thread_ms", median(alone) * 1e3},
                    {"speed_up", median(alone) / median(together[row.key])},
                    {"ideal", kStages * (1 - bubble_share(row.make, problem, {}))}});
  }
  return rows;
}

}  // namespace

std::vector<Row> bench_pipeline(const Options& options, const Say& say) {
  std::vector<Row> rows;
  for (const int stages : {2, 4, 8})
    for (const ScheduleRow& row : schedule::pipelines()) {
      say(fmt::format("layers that wait, {}, {} stages", row.key, stages));
      rows.push_back(waiting_row(row, stages, options));
    }
  for (const PipelineNetwork& network : pipeline_networks())
    for (Row& row : real_rows(network, options, say)) rows.push_back(std::move(row));
  return rows;
}

}  // namespace paceline::bench
