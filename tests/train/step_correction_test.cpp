#include "paceline/train/step_correction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "paceline/graph/registry.h"

namespace paceline::train {
namespace {

Recipe corrected_recipe(std::int64_t workers, std::int64_t batch) {
  Recipe recipe;
  recipe.model.network = "mlp", recipe.strategy.name = workers > 1 ? "allreduce" : "single";
  recipe.parallel.workers = workers, recipe.data.batch = batch;
  return recipe;
}

TEST(StepCorrection, AWayIsWhatARecipeChanges) {
  Recipe recipe = corrected_recipe(4, 16);
  EXPECT_THAT(way_of(recipe), testing::ElementsAre("parallel.workers=4", "strategy.name=\"allreduce\""));
  recipe.parallel.zero = 3, recipe.comm.algorithm = "ring", recipe.optim.rate = 7;
  EXPECT_THAT(way_of(recipe),
              testing::ElementsAre("parallel.workers=4", "strategy.name=\"allreduce\"", "parallel.zero=3", "comm.algorithm=\"ring\""));
  Recipe other = corrected_recipe(2, 16);
  other.train.micro_batches = 4;
  EXPECT_EQ(way_of(with_way(other, way_of(recipe))), way_of(recipe));
}

TEST(StepCorrection, IsWhatRunsOfTheSameKindWereOff) {
  const graph::Graph graph = graph::make_graph(corrected_recipe(1, 1).model);
  const auto model = [](const Recipe& recipe) { return static_cast<double>(recipe.data.batch); };  // a second for each sample
  Recipe ring = corrected_recipe(4, 16), zero = ring;
  ring.comm.algorithm = "ring", zero.parallel.zero = 3;
  std::vector<perf::RunStep> steps = {run_step(corrected_recipe(4, 16), graph, 2 * 16), run_step(ring, graph, 8 * 16),
                                      run_step(corrected_recipe(4, 64), graph, 3 * 64)};
  Recipe gossip = corrected_recipe(4, 16);
  gossip.strategy.name = "gossip";
  steps.push_back(run_step(gossip, graph, 50 * 16));
  steps.push_back(run_step(zero, graph, 100 * 16));
  steps.back().parameters = 1;  // of a wider network
  const StepCorrection correction(graph, steps, model);
  EXPECT_DOUBLE_EQ(correction.factor(corrected_recipe(4, 16)), 2) << "the same run counts alone";
  EXPECT_DOUBLE_EQ(correction.factor(ring), 8);
  EXPECT_NEAR(correction.factor(corrected_recipe(4, 32)), std::sqrt(2 * 3), 1e-12) << "halfway by logarithms";
  EXPECT_DOUBLE_EQ(correction.factor(corrected_recipe(4, 1024)), 3);
  EXPECT_DOUBLE_EQ(correction.factor(corrected_recipe(4, 8)), 2);
  Recipe tree = corrected_recipe(4, 16);
  tree.comm.algorithm = "tree";
  EXPECT_NEAR(correction.factor(tree), std::sqrt(2 * 8), 1e-12) << "of the same kind, by their geometric mean";
  EXPECT_NEAR(correction.factor(zero), std::cbrt(2 * 8 * 50), 1e-12) << "nobody ran it, but others with four workers";
  EXPECT_DOUBLE_EQ(correction.factor(corrected_recipe(2, 16)), 1);
  Recipe adam = corrected_recipe(4, 16);
  adam.optim.name = "adamw";
  EXPECT_DOUBLE_EQ(correction.factor(adam), 1);
  EXPECT_EQ(correction.seconds(ring), 8 * 16);
  ring.optim.momentum = 0;  // an update that moves less memory
  EXPECT_EQ(correction.seconds(ring), std::nullopt);
  EXPECT_DOUBLE_EQ(correction.factor(ring), 1);
  EXPECT_EQ(correction.seconds(corrected_recipe(4, 32)), std::nullopt);
}

}  // namespace
}  // namespace paceline::train
