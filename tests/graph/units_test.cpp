// How networks are cut into units.
#include "paceline/graph/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "paceline/graph/registry.h"

namespace paceline::graph {
namespace {

using testing::ElementsAre;

Graph network(const std::string& key) {
  ModelConfig config;
  config.network = key;
  if (key == "gpt") config.layers = 3, config.width = 16, config.input = {8}, config.classes = 11;
  return make_graph(config);
}

std::vector<std::string> names_of(const std::string& key) {
  std::vector<std::string> names;
  for (const Unit& unit : units_of(network(key))) names.push_back(unit.name);
  return names;
}

TEST(Units, AreTheBlocksOfANetwork) {
  EXPECT_THAT(names_of("resnet20"), ElementsAre("conv1", "layer1.0", "layer1.1", "layer1.2", "layer2.0", "layer2.1", "layer2.2", "layer3.0",
                                                "layer3.1", "layer3.2", "fc"));
  EXPECT_THAT(names_of("gpt"),
              ElementsAre("transformer", "transformer.h.0", "transformer.h.1", "transformer.h.2", "transformer.ln_f", "lm_head"));
  EXPECT_THAT(names_of("mlp"), ElementsAre("fc1", "fc2"));
  EXPECT_EQ(names_of("vgg16").size(), 16u) << "one for each layer with weights";
  EXPECT_EQ(names_of("inception_v3").size(), 17u) << "five convolutions, eleven mixed blocks and the classifier";
}

TEST(Units, CoverEveryNetworkAndNoSkipConnectionSpansTwo) {
  for (const auto& entry : networks()) {
    const Graph graph = network(std::string(entry.key));
    const std::vector<Unit> units = units_of(graph);
    const auto end = static_cast<std::size_t>(graph.logits()) + 1;
    ASSERT_FALSE(units.empty());
    EXPECT_EQ(units.front().first, 1u);
    EXPECT_EQ(units.back().last, end);
    std::set<std::string> names;
    for (std::size_t u = 0; u < units.size(); ++u) {
      EXPECT_TRUE(names.insert(units[u].name).second) << entry.key << ": " << units[u].name << " comes twice";
      EXPECT_EQ(units[u].first, u > 0 ? units[u - 1].last : 1u);
      std::int64_t parameters = 0;
      std::set<int> from_outside;
      for (std::size_t i = units[u].first; i < units[u].last; ++i) {
        parameters += graph.layers()[i].parameters;
        for (const int input : graph.layers()[i].inputs)
          if (static_cast<std::size_t>(input) < units[u].first) from_outside.insert(input);
      }
      EXPECT_GT(parameters, 0) << entry.key << ' ' << units[u].name;
      EXPECT_EQ(from_outside.size(), 1u) << entry.key << ' ' << units[u].name;
    }
  }
}

}  // namespace
}  // namespace paceline::graph
