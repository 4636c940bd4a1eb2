// The builder's cursor, its names and its defaults; the table and the JSON of a graph.
#include "paceline/graph/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/graph/table.h"

namespace paceline::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Builder, AppendsToTheTop) {
  Builder net("tiny", {1, 8, 8}, 3);
  net.conv("conv", 4, {.kernel = 3}).relu().max_pool({.kernel = 2}).flatten().fc("fc", 3);
  const Graph graph = net.finish();
  for (std::size_t i = 1; i < graph.layers().size(); ++i) EXPECT_THAT(graph.layers()[i].inputs, ElementsAre(static_cast<int>(i) - 1));
  EXPECT_EQ(graph.output(), (Shape{3}));
}

TEST(Builder, BranchesAndJoins) {
  Builder net("tiny", {4, 8, 8}, 4);
  const int left = net.conv("left", 4).top();
  const int right = net.from(0).conv("right", 2).top();
  net.concat({left, right, 0});
  EXPECT_EQ(net.shape(), (Shape{10, 8, 8}));
  net.from(left).add(0);
  const Graph graph = net.global_pool().flatten().finish();
  EXPECT_THAT(graph.layers()[4].inputs, ElementsAre(left, 0));
  EXPECT_EQ(graph.layers()[2].inputs[0], 0);
}

TEST(Builder, NamesWhatIsLeftUnnamed) {
  Builder net("tiny", {4}, 4);
  net.relu().gelu().relu().relu("mine").tanh().sigmoid();
  const Graph graph = net.finish();
  EXPECT_EQ(graph.layers()[1].name, "relu_1");
  EXPECT_EQ(graph.layers()[2].name, "gelu_1");
  EXPECT_EQ(graph.layers()[3].name, "relu_2");
  EXPECT_EQ(graph.layers()[4].name, "mine");
  EXPECT_EQ(graph.layers()[5].kind, Kind::tanh);
  EXPECT_EQ(graph.layers()[6].kind, Kind::sigmoid);
}

TEST(Builder, DrawHoldsUntilTheNextDraw) {
  Builder net("tiny", {4}, 4);
  net.fc("a", 4).draw(Init::normal, 0.5).fc("b", 4).bn("bn").draw(Init::standard).fc("c", 4);
  const Graph graph = net.finish();
  EXPECT_EQ(graph.layers()[1].init, Init::standard);
  EXPECT_EQ(graph.layers()[2].init, Init::normal);
  EXPECT_EQ(graph.layers()[2].init_std, 0.5);
  EXPECT_EQ(graph.layers()[3].init, Init::standard) << "norms start at 1 and 0";
  EXPECT_EQ(graph.layers()[4].init, Init::standard);
}

TEST(Builder, RefusesToFinishWithoutLogits) {
  Builder net("tiny", {4}, 10);
  net.fc("fc", 7);
  try {
    net.finish();
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ends in 'fc' of shape 7"));
  }
}

TEST(Builder, RecipeGoesBeforeTheUsual) {
  ModelConfig config;
  EXPECT_EQ(Builder(config, {3, 224, 224}, 1000).input(), (Shape{3, 224, 224}));
  EXPECT_FALSE(Builder(config, {3, 224, 224}, 1000).small_image());
  config.input = {3, 32, 32};
  config.classes = 7;
  EXPECT_EQ(Builder(config, {3, 224, 224}, 1000).input(), (Shape{3, 32, 32}));
  EXPECT_EQ(Builder(config, {3, 224, 224}, 1000).classes(), 7);
  EXPECT_TRUE(Builder(config, {3, 224, 224}, 1000).small_image());
}

TEST(Sequence, CountsLikePyTorchs) {
  Sequence features("features");
  EXPECT_EQ(features(), "features.0");
  EXPECT_EQ(features(), "features.1");
}

Graph lenet5() { return make_graph(ModelConfig{.network = "lenet5"}); }

TEST(Table, ListsLayersAndTotals) {
  const std::string table = layer_table(lenet5());
  std::vector<std::size_t> widths;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line) && !line.empty();) widths.push_back(line.size());
  ASSERT_EQ(widths.size(), lenet5().layers().size() + 1);
  for (std::size_t width : widths) EXPECT_EQ(width, widths[0]);
  EXPECT_THAT(table, testing::ContainsRegex("fc1 +fc +120 +48,120 +48,000 +480\n"));
  EXPECT_THAT(table, HasSubstr("lenet5, input 1x28x28: 61,706 parameters, 0.0004165 GMAC, fp32 gradient 0.2468 MB"));
  EXPECT_THAT(table, HasSubstr("2 conv, 3 fc, 2 pool"));
}

TEST(Table, JsonHasEveryLayer) {
  const auto json = to_json(lenet5());
  EXPECT_EQ(json["network"], "lenet5");
  EXPECT_EQ(json["input"], nlohmann::json({1, 28, 28}));
  EXPECT_EQ(json["parameters"], 61706);
  EXPECT_EQ(json["macs"], 416520);
  EXPECT_EQ(json["counts"], nlohmann::json({{"conv", 2}, {"fc", 3}, {"pool", 2}}));
  ASSERT_EQ(json["layers"].size(), lenet5().layers().size());
  EXPECT_EQ(json["layers"][1], nlohmann::json({{"name", "conv1"},
                                               {"kind", "conv"},
                                               {"output", {6, 28, 28}},
                                               {"parameters", 156},
                                               {"macs", 6 * 28 * 28 * 25},
                                               {"activation_bytes", 4 * 6 * 28 * 28},
                                               {"gradient_bytes", 624}}));
}

}  // namespace
}  // namespace paceline::graph
