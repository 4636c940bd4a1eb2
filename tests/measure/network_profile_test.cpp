// A profile by a clock that moves by one tick whenever somebody looks at it: every piece between two marks takes a tick.
#include "paceline/measure/network_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"

namespace paceline::measure {
namespace {

class TickingClock final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::milliseconds(++ticks_); }

 private:
  mutable std::atomic<std::int64_t> ticks_ = 0;
};

graph::Graph tiny(const std::string& network, std::vector<std::int64_t> input) {
  graph::ModelConfig config;
  config.network = network, config.input = std::move(input), config.classes = 11;
  config.layers = 2, config.width = 16, config.heads = 2;
  return graph::make_graph(config);
}

NetworkProfileOptions both_optimizers() {
  NetworkProfileOptions options{.batches = {2, 5}, .seconds = 0};
  for (const char* name : {"sgd", "adamw"}) {
    options.optimizers.emplace_back();
    options.optimizers.back().name = name;
  }
  return options;
}

/// Ticks of a tenth of a second, so that few steps are measured; one of them takes a minute.
class InterruptedClock final : public Clock {
 public:
  explicit InterruptedClock(std::int64_t tick) : tick_(tick) {}
  Nanoseconds now() const override {
    const std::int64_t ticks = ++ticks_;
    return std::chrono::milliseconds(100 * ticks) + std::chrono::seconds(ticks > tick_ ? 60 : 0);
  }
  std::int64_t ticks() const { return ticks_; }

 private:
  std::int64_t tick_;
  mutable std::atomic<std::int64_t> ticks_ = 0;
};

perf::ProfileTable profile_of(const graph::Graph& graph, comm::Communicator& comm, const Clock& clock = TickingClock()) {
  nn::GraphModule model(graph, {});
  const at::Tensor before = model.arena().parameters().clone();
  const Rank rank{.comm = comm, .threads = 3};
  perf::ProfileTable table = profile_network(
      model, nn::SoftmaxLoss(), [&](std::int64_t samples) { return random_batch(graph, samples, model.device()); }, both_optimizers(), rank,
      clock);
  EXPECT_TRUE(at::equal(before, model.arena().parameters())) << "the weights stay as they are";
  return table;
}

void expect_ticks(const perf::ProfileTable& table, const graph::Graph& graph, double tick) {
  std::int64_t parameters = 0;
  for (const perf::UnitProfile& unit : table.units) {
    parameters += unit.parameters;
    ASSERT_EQ(unit.seconds.size(), 2u);
    for (const std::int64_t samples : {2, 5}) {
      const perf::UnitSeconds& seconds = unit.seconds.at(samples);
      for (const double each : {seconds.forward, seconds.backward, seconds.input_gradients, seconds.weight_gradients, seconds.evaluation})
        EXPECT_NEAR(each, tick, tick * 1e-6) << unit.name;
    }
  }
  EXPECT_EQ(parameters, graph.parameter_count());
  EXPECT_THAT(table.update_s, testing::SizeIs(2));
  for (const auto& [optimizer, seconds] : table.update_s) {
    EXPECT_GT(seconds * static_cast<double>(parameters), tick * 0.5) << optimizer;
    EXPECT_LE(seconds * static_cast<double>(parameters), tick) << "padding is updated as well";
  }
}

TEST(ProfileNetwork, TimesEveryUnitAndPassOnce) {
  for (const graph::Graph& graph : {tiny("mlp", {1, 8, 8}), tiny("lenet5", {1, 28, 28}), tiny("gpt", {6})}) {
    const auto alone = std::move(comm::local_group(1).front());
    const perf::ProfileTable table = profile_of(graph, *alone);
    EXPECT_EQ(table.workers, 1);
    EXPECT_EQ(table.threads, 3);
    expect_ticks(table, graph, 1e-3);
  }
}

TEST(ProfileNetwork, ASingleInterruptionDoesNotCount) {
  const graph::Graph graph = tiny("mlp", {1, 8, 8});
  const auto alone = std::move(comm::local_group(1).front());
  std::int64_t ticks = 1;
  for (std::int64_t tick = 0; tick < ticks; ++tick) {
    const InterruptedClock clock(tick);
    const perf::ProfileTable table = profile_of(graph, *alone, clock);
    ticks = clock.ticks();
    expect_ticks(table, graph, 0.1);
    ASSERT_FALSE(testing::Test::HasFailure()) << "interrupted at tick " << tick;
  }
}

TEST(ProfileNetwork, IsTheMeanOverWorkersThatMeasureTogether) {
  const graph::Graph graph = tiny("mlp", {1, 8, 8});
  auto group = comm::local_group(2);
  std::vector<perf::ProfileTable> tables(2);
  std::thread other([&] { tables[1] = profile_of(graph, *group[1]); });
  tables[0] = profile_of(graph, *group[0]);
  other.join();
  EXPECT_EQ(tables[0].workers, 2);
  EXPECT_EQ(tables[0], tables[1]);
  expect_ticks(tables[0], graph, 1e-3);
}

TEST(RandomBatch, HasTheFormThatTheNetworkTakes) {
  const step::Batch images = random_batch(tiny("lenet5", {1, 28, 28}), 3, c10::Device(c10::kCPU));
  EXPECT_THAT(images.inputs.sizes().vec(), testing::ElementsAre(3, 1, 28, 28));
  EXPECT_THAT(images.targets.sizes().vec(), testing::ElementsAre(3));
  const step::Batch text = random_batch(tiny("gpt", {6}), 2, c10::Device(c10::kCPU));
  EXPECT_EQ(text.inputs.scalar_type(), at::kLong);
  EXPECT_THAT(text.inputs.sizes().vec(), testing::ElementsAre(2, 6));
  EXPECT_THAT(text.targets.sizes().vec(), testing::ElementsAre(2, 6));
}

}  // namespace
}  // namespace paceline::measure
