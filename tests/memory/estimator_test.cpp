// What an estimator keeps from plan to plan, and the cuts into stages that a limit allows.
#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/graph/registry.h"
#include "paceline/memory/estimate.h"

namespace paceline::memory {
namespace {

graph::Graph deep_gpt(std::int64_t layers, std::int64_t width) {
  graph::ModelConfig config;
  config.network = "gpt", config.layers = layers, config.width = width, config.heads = 8, config.input = {64}, config.classes = 64;
  return graph::make_graph(config);
}

/// Whatever an estimator has kept from one plan, the next one gets its own numbers, and the same cut into stages.
TEST(Estimator, SaysOfManyPlansWhatEachIsAlone) {
  graph::ModelConfig mixed;
  mixed.network = "gpt", mixed.layers = 6, mixed.width = 64, mixed.heads = 8, mixed.input = {64}, mixed.classes = 64, mixed.experts = 4;
  for (const graph::Graph& graph : {deep_gpt(10, 64), graph::make_graph(mixed)}) {
    const Estimator together(graph);
    for (const int data : {1, 2, 4})
      for (const int tensor : {1, 2})
        for (const int pipeline : {1, 3})
          for (const char* recompute : {"none", "units", "all"})
            for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{6'000'000}}) {
              Plan plan{.data = data, .pipeline = pipeline, .tensor = tensor, .samples = 16 / data};
              plan.micro_batches = pipeline, plan.recompute = recompute, plan.limit = limit;
              EXPECT_EQ(together.cut_stages(plan), cut_stages(graph, plan));
              const auto kept = together.estimate(plan), alone = estimate(graph, plan);
              ASSERT_EQ(kept.size(), alone.size());
              for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].bytes.of, alone[i].bytes.of) << kept[i].name;
            }
  }
}

/// A limit below the state of all stages together is not searched for a cut; one above it is.
TEST(Estimator, GivesUpOnlyWhereNoCutCanFit) {
  const graph::Graph graph = deep_gpt(10, 64);
  Plan plan{.data = 1, .pipeline = 4, .samples = 4, .micro_batches = 4};
  const auto fastest = cut_stages(graph, plan);
  const std::int64_t need = largest(estimate(graph, plan, fastest)).bytes.total();
  std::int64_t least = need;
  for (plan.limit = need; plan.limit > need / 4; plan.limit -= need / 64)
    least = std::min(least, largest(estimate(graph, plan, cut_stages(graph, plan))).bytes.total());
  EXPECT_LT(least, need) << "a cut that fits better than the fastest one";
  plan.limit = 1000;
  EXPECT_EQ(cut_stages(graph, plan), fastest);
}

/// One layer as large as all others: alone on its stage it needs nothing of another unit's, under whatever stage of ZeRO's.
TEST(Estimator, FindsTheOnlyCutThatFits) {
  graph::ModelConfig config;
  config.network = "mlp", config.input = {1, 32, 32}, config.classes = 10, config.hidden.assign(90, 128);
  config.hidden.front() = 512;
  const graph::Graph graph = graph::make_graph(config);
  const std::size_t units = graph::counted_costs(graph).size();
  ASSERT_GT(units, 80u);
  for (const int zero : {0, 1, 2, 3}) {
    Plan plan{.data = 4, .pipeline = 2, .zero = zero, .bucket = 1 << 10};
    const auto need = [&](const std::vector<graph::Units>& stages) { return largest(estimate(graph, plan, stages)).bytes.total(); };
    std::int64_t least = need({{0, 1}, {1, units}});
    for (std::size_t border = 2; border < units; ++border) least = std::min(least, need({{0, border}, {border, units}}));
    plan.limit = least;
    EXPECT_EQ(need(cut_stages(graph, plan)), least) << "ZeRO " << zero;
  }
}

/// The first stages of 1F1B hold more micro-batches than the last ones, so they need fewer units.
TEST(Estimator, FindsACutThatFitsExactlyWhereThereIsOne) {
  const graph::Graph graph = deep_gpt(6, 64);
  const std::size_t units = graph::counted_costs(graph).size();
  for (const char* schedule : {"1f1b", "gpipe"}) {
    Plan plan{.data = 1, .pipeline = 3, .samples = 12, .micro_batches = 12};
    plan.schedule = schedule;
    const auto need = [&](const std::vector<graph::Units>& stages) { return largest(estimate(graph, plan, stages)).bytes.total(); };
    std::int64_t least = need({{0, 1}, {1, 2}, {2, units}});
    for (std::size_t first = 1; first + 1 < units; ++first)
      for (std::size_t second = first + 1; second < units; ++second)
        least = std::min(least, need({{0, first}, {first, second}, {second, units}}));
    plan.limit = least;
    EXPECT_EQ(need(cut_stages(graph, plan)), least) << schedule;
    plan.limit = least - 1;
    EXPECT_EQ(cut_stages(graph, plan), cut_stages(graph, {.pipeline = 3})) << "the fastest one, where none fits";
  }
}

}  // namespace
}  // namespace paceline::memory
