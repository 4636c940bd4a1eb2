// What the units of a model cost, by which it is cut into stages.
#include "paceline/pipeline/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "paceline/nn/module_model.h"
#include "ranks.h"

namespace paceline::pipeline {
namespace {

TEST(Costs, FollowTheNetwork) {
  const graph::Graph graph = network("cnn");
  const std::vector<graph::UnitCost> costs = graph::counted_costs(graph);
  nn::GraphModule module(graph, {});
  ASSERT_EQ(costs.size(), module.units().size());
  for (std::size_t unit = 0; unit < costs.size(); ++unit) {
    EXPECT_EQ(costs[unit].name, module.units()[unit].name);
    EXPECT_GT(costs[unit].time, 0);
  }
  const at::Tensor statistics = module.statistics().parameters().clone();
  const at::Tensor inputs = at::randn({2, 2, 8, 8});
  for (const auto& measured : {measured_costs(module, inputs, SteadyClock()), measured_costs(graph, {}, inputs, SteadyClock())}) {
    ASSERT_EQ(measured.size(), costs.size());
    for (const graph::UnitCost& cost : measured) EXPECT_GT(cost.time, 0) << cost.name;
  }
  EXPECT_TRUE(at::equal(module.statistics().parameters(), statistics)) << "measuring leaves no trace";
}

// Blocks that take as long as they say: the cut follows the clock, and not the parameters.
TEST(Costs, MeasuredTimesDecideTheCut) {
  VirtualClock clock;
  const torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4), torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  std::vector<nn::ModuleModel::Block> blocks;
  for (int i = 0; i < 4; ++i)
    blocks.push_back(
        {std::to_string(i), [&clock, i, layer = layers->ptr<torch::nn::LinearImpl>(static_cast<std::size_t>(i))](const at::Tensor& value) {
           clock.advance(std::chrono::milliseconds(i == 3 ? 30 : 10));
           return layer->forward(value);
         }});
  nn::ModuleModel model(layers.ptr(), blocks);
  const auto begin_of_second = [](const std::vector<graph::UnitCost>& costs) { return graph::cut_stages(costs, {.ranks = 2})[1].first; };
  EXPECT_EQ(begin_of_second(counted_costs(model)), 2U);
  const std::vector<graph::UnitCost> measured = measured_costs(model, at::randn({5, 4}), clock);
  EXPECT_DOUBLE_EQ(measured[0].time, 0.010 / 5);
  EXPECT_DOUBLE_EQ(measured[3].time, 0.030 / 5);
  EXPECT_EQ(begin_of_second(measured), 3U);
}

}  // namespace
}  // namespace paceline::pipeline
