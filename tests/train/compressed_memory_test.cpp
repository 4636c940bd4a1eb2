// What compressors hold counts: in the memory plan of a recipe as much as in a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/train/from_recipe.h"
#include "paceline/train/memory_measure.h"
#include "paceline/train/memory_plan.h"
#include "paceline/train/planned.h"
#include "support.h"

namespace paceline::train {
namespace {

using memory::Category;

Recipe compressed_recipe(const std::string& compressor) {
  Recipe recipe = tiny_recipe();
  recipe.model.hidden = {300, 200};
  recipe.parallel.workers = 2, recipe.strategy.name = "allreduce", recipe.strategy.bucket_mb = 0.1;
  recipe.comm.compression = compressor;
  recipe.optim.name = "sgd", recipe.optim.momentum = 0.9;
  return recipe;
}

memory::Bytes planned_bytes(const Recipe& recipe) {
  const Datasets data = make_datasets(recipe);
  return memory::estimate(graph_for(recipe.model, data.training->info()), plan_of(recipe)).at(0).bytes;
}

class CompressedMemory : public testing::TestWithParam<std::string_view> {};

TEST_P(CompressedMemory, IsPlannedAsExchangesHoldIt) {
  const Recipe recipe = compressed_recipe(std::string(GetParam()));
  const memory::Bytes planned = planned_bytes(recipe);
  const auto plan = static_cast<double>(planned[Category::communication]);
  EXPECT_EQ(planned[Category::moments] == 0, GetParam() == "dgc");
  const bool varies = GetParam() == "threshold" || GetParam() == "dgc";  // the length of its codes
  for (const memory::Bytes& rank : measure_memory(recipe)) {
    const auto held = static_cast<double>(rank[Category::communication]);
    EXPECT_LE(held, 1.05 * plan);
    EXPECT_GE(held, varies ? 0.5 * plan : 0.9 * plan);
    EXPECT_EQ(rank[Category::moments] == 0, GetParam() == "dgc") << "which has its optimizer's momentum";
  }
}

std::vector<std::string_view> compressor_keys() {
  std::vector<std::string_view> keys;
  for (const auto& row : compress::compressors()) keys.push_back(row.key);
  return keys;
}
INSTANTIATE_TEST_SUITE_P(Of, CompressedMemory, testing::ValuesIn(compressor_keys()),
                         [](const auto& item) { return std::string(item.param); });

TEST(MemoryPlan, ALimitKnowsWhatCompressorsKeep) {
  Recipe recipe = compressed_recipe("none");
  const Datasets data = make_datasets(recipe);
  const graph::Graph graph = graph_for(recipe.model, data.training->info());
  const memory::Plan plain = plan_of(recipe);
  recipe.train.memory_gb = static_cast<double>(memory::largest(memory::estimate(graph, plain)).bytes.total() + 1000) / 1e9;
  EXPECT_NO_THROW(require_memory(recipe, graph, plan_of(recipe), {}));
  recipe.comm.compression = "onebit";
  EXPECT_THROW(require_memory(recipe, graph, plan_of(recipe), {}), ConfigError);
  recipe.parallel.workers = 1, recipe.strategy.name = "single";
  EXPECT_EQ(plan_of(recipe).compression, memory::Compression()) << "one worker sends nothing";
}

TEST(MemoryPlan, ASingleWorkerKeepsWhatItDidNotPushToServersAsProcesses) {
  Recipe recipe = compressed_recipe("topk");
  recipe.strategy.name = "asgd", recipe.parallel.workers = 1, recipe.ps.executor = "processes";
  const auto communication = [&] { return planned_bytes(recipe)[Category::communication]; };
  const std::int64_t compressed = communication();
  recipe.comm.compression = "none";
  const Datasets data = make_datasets(recipe);
  EXPECT_GE(compressed - communication(), 4 * graph_for(recipe.model, data.training->info()).parameter_count()) << "the residual";
}

TEST(MemoryPlan, PlansCountWhatRunsDo) {
  const Recipe recipe = compressed_recipe("none");
  const Datasets data = make_datasets(recipe);
  const graph::Graph graph = graph_for(recipe.model, data.training->info());
  const PlanInputs inputs{.machine = {.cluster = perf::find_cluster("two_cores")}, .workers = 2};
  const perf::PlanQuestion question = plan_question(recipe, graph, inputs);
  std::size_t compressors = 0;
  for (const perf::OtherWire& wire : question.strategies.wires) {
    if (wire.compression == "none") continue;
    ++compressors;
    const memory::Compression run = plan_of(compressed_recipe(wire.compression)).compression;
    EXPECT_NEAR(wire.holds.kept, run.kept, 0.1) << wire.compression;
    EXPECT_NEAR(wire.holds.codes, run.codes, 0.1) << wire.compression;
    EXPECT_NEAR(wire.holds.each, run.each, 0.1) << wire.compression;
    EXPECT_EQ(wire.moments, wire.compression == "dgc" ? 0 : 1);
  }
  EXPECT_EQ(compressors, compress::compressors().size());
}

}  // namespace
}  // namespace paceline::train
