// How the rules of tensor parallelism split the built-in networks.
#include "paceline/graph/tensor_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/split_table.h"
#include "paceline/graph/units.h"
#include "tests/message_of.h"

namespace paceline::graph {
namespace {

using testing::HasSubstr;
using testing::Not;

Graph network(const std::string& key, const std::function<void(ModelConfig&)>& change = nullptr) {
  ModelConfig config;
  config.network = key;
  if (key == "gpt") config.layers = 2, config.width = 48, config.heads = 6, config.input = {12}, config.classes = 65;
  if (change) change(config);
  return make_graph(config);
}

std::size_t index_of(const Graph& graph, const std::string& layer) {
  for (std::size_t i = 0; i < graph.layers().size(); ++i)
    if (graph.layers()[i].name == layer) return i;
  throw InternalError("no layer " + layer);
}

std::string form_of(const Graph& graph, const TensorSplit& split, const std::string& layer) {
  return std::string(name_of(split.layers[index_of(graph, layer)].form));
}

std::size_t calls(const TensorSplit& split, std::vector<Traffic> LayerSplit::*pass) {
  std::size_t sum = 0;
  for (const LayerSplit& layer : split.layers) sum += (layer.*pass).size();
  return sum;
}

TEST(TensorSplit, ATiedHeadIsSplitAsItsTableIs) {
  const auto narrow = [](bool tied) { return [tied](ModelConfig& config) { config.classes = 4, config.tied = tied; }; };
  const Graph apart = network("gpt", narrow(false)), tied = network("gpt", narrow(true));
  EXPECT_EQ(form_of(apart, tensor_split(apart, 2), "lm_head"), "whole") << "not worth it";
  const TensorSplit split = tensor_split(tied, 2), more = tensor_split(tied, 6);
  EXPECT_EQ(form_of(tied, split, "transformer"), "row");
  EXPECT_EQ(form_of(tied, split, "lm_head"), "column");
  EXPECT_EQ(form_of(tied, more, "transformer"), "whole") << "four tokens for six ranks";
  EXPECT_EQ(form_of(tied, more, "lm_head"), "whole");
  EXPECT_EQ(local_parameters(apart, split, 0) - local_parameters(tied, split, 0), 4 * 48);
}

TEST(TensorSplit, WhetherRanksCanShareIsKnownWithoutARefusal) {
  for (const std::string key : {"gpt", "vgg16", "resnet18", "mlp"})
    for (const bool sequence : {false, true})
      for (const int parts : {1, 2, 3, 6, 8, 12, 64}) {
        const Graph graph = network(key);
        bool can = false;
        try {
          can = tensor_split(graph, parts, sequence).splits_anything();
        } catch (const ConfigError&) {
        }
        EXPECT_EQ(splits(graph, parts, sequence), can) << key << " on " << parts << (sequence ? ", by positions" : "");
      }
  EXPECT_FALSE(splits(network("vgg16"), 1 << 20));
}

TEST(TensorSplit, ABlockOfATransformerCostsTwoAllreducesEachWay) {
  const Graph graph = network("gpt");
  const TensorSplit split = tensor_split(graph, 2);
  EXPECT_EQ(form_of(graph, split, "transformer.h.0.attn"), "column, row");
  EXPECT_EQ(form_of(graph, split, "transformer.h.0.mlp.c_fc"), "column");
  EXPECT_EQ(form_of(graph, split, "gelu_1"), "follows");
  EXPECT_EQ(form_of(graph, split, "transformer.h.0.mlp.c_proj"), "row");
  EXPECT_EQ(form_of(graph, split, "transformer.h.0.ln_1"), "whole");
  EXPECT_EQ(form_of(graph, split, "lm_head"), "column");
  EXPECT_TRUE(split.splits_logits(graph));
  // Forward: the embedding, two in each block, three small ones of the loss. Backward: two in each block, the head's.
  EXPECT_EQ(calls(split, &LayerSplit::forward), 1U + 2 * 2 + 3);
  EXPECT_EQ(calls(split, &LayerSplit::backward), 2U * 2 + 1);
  const LayerSplit& attention = split.layers[index_of(graph, "transformer.h.1.attn")];
  EXPECT_EQ(attention.forward.at(0).bytes, 4 * 12 * 48);
  EXPECT_EQ(attention.backward.at(0).bytes, 4 * 12 * 48);
}

TEST(TensorSplit, QueriesKeysAndValuesAreCutByHeads) {
  const Graph graph = network("gpt");
  const TensorSplit split = tensor_split(graph, 3);
  const LayerSplit& attention = split.layers[index_of(graph, "transformer.h.0.attn")];
  const Slice slice = slice_of({144, 48}, *attention.cuts.at(0), 3, 1);
  EXPECT_EQ(slice.dim, 0);
  ASSERT_EQ(slice.runs.size(), 3U);
  for (int block = 0; block < 3; ++block) {
    EXPECT_EQ(slice.runs[static_cast<std::size_t>(block)].first, 48 * block + 16);
    EXPECT_EQ(slice.runs[static_cast<std::size_t>(block)].count, 16);
  }
  EXPECT_EQ(slice_of({48, 48}, *attention.cuts.at(2), 3, 2).dim, 1);
  EXPECT_FALSE(attention.cuts.at(3)) << "the bias of the output is added once, after the sum";
  EXPECT_EQ(local_layer(graph, split, index_of(graph, "transformer.h.0.attn"), 0).heads, 2);
}

TEST(TensorSplit, SequencesAreSplitBetweenThePairs) {
  const Graph graph = network("gpt");
  const TensorSplit split = tensor_split(graph, 2, true);
  const LayerSplit &norm = split.layers[index_of(graph, "transformer.h.0.ln_1")],
                   &attention = split.layers[index_of(graph, "transformer.h.0.attn")];
  EXPECT_EQ(norm.output, Layout::positions);
  EXPECT_TRUE(norm.sums_gradients);
  ASSERT_EQ(attention.forward.size(), 2U);
  EXPECT_EQ(attention.forward[0].exchange, Exchange::all_gather);
  EXPECT_EQ(attention.forward[1].exchange, Exchange::reduce_scatter);
  EXPECT_EQ(local_layer(graph, split, index_of(graph, "transformer.h.0.ln_1"), 0).output, (Shape{6, 48}));
}

TEST(TensorSplit, FullyConnectedLayersAlternate) {
  const Graph graph = network("mlp", [](ModelConfig& config) { config.hidden = {64, 32, 16}; });
  const TensorSplit split = tensor_split(graph, 4);
  EXPECT_EQ(form_of(graph, split, "fc1"), "column");
  EXPECT_EQ(form_of(graph, split, "fc2"), "row");
  EXPECT_EQ(form_of(graph, split, "relu_2"), "whole");
  EXPECT_EQ(form_of(graph, split, "fc3"), "column");
  EXPECT_EQ(form_of(graph, split, "fc4"), "row");
  EXPECT_EQ(calls(split, &LayerSplit::forward), 2U);
  EXPECT_EQ(calls(split, &LayerSplit::backward), 1U) << "nothing before fc1 wants a gradient";
}

TEST(TensorSplit, ConvolutionsPairWithNormsAndPoolsBetweenThem) {
  const Graph resnet = network("resnet18");
  const TensorSplit split = tensor_split(resnet, 2);
  EXPECT_EQ(form_of(resnet, split, "layer1.0.conv1"), "column");
  EXPECT_EQ(form_of(resnet, split, "layer1.0.bn1"), "follows");
  EXPECT_EQ(form_of(resnet, split, "layer1.0.conv2"), "row");
  EXPECT_EQ(form_of(resnet, split, "layer1.0.bn2"), "whole");
  EXPECT_EQ(form_of(resnet, split, "layer2.0.downsample.0"), "whole") << "it has no partner";
  EXPECT_EQ(split.layers[index_of(resnet, "layer1.0.bn1")].cuts.size(), 4U) << "its statistics too";

  const Graph vgg = network("vgg16");
  const TensorSplit classifier = tensor_split(vgg, 2);
  EXPECT_EQ(form_of(vgg, classifier, "features.28"), "column") << "the thirteenth convolution";
  EXPECT_EQ(form_of(vgg, classifier, "classifier.0"), "row") << "behind pools and a flatten";

  const Graph mobile = network("mobilenet_v1");
  const TensorSplit depthwise = tensor_split(mobile, 2);
  int following = 0;
  for (std::size_t i = 0; i < mobile.layers().size(); ++i)
    if (mobile.layers()[i].groups > 1 && depthwise.layers[i].form == Form::follows) {
      ++following;
      EXPECT_EQ(local_layer(mobile, depthwise, i, 0).groups, mobile.layers()[i].groups / 2);
    }
  EXPECT_GT(following, 0);
}

TEST(TensorSplit, EveryNetworkOfRanksHoldsEveryElementOnce) {
  for (const auto& entry : networks())
    for (const int parts : {2, 3, 4}) {
      const Graph graph = network(std::string(entry.key), [](ModelConfig& config) { config.heads = 12; });
      TensorSplit split;
      try {
        split = tensor_split(graph, parts);
      } catch (const ConfigError&) {
        EXPECT_EQ(parts, 3) << entry.key;
        continue;
      }
      for (const Parameter& parameter : graph.parameters()) ASSERT_FALSE(parameter.shape.empty());
      const auto first = local_tensors(graph, split, 0);
      for (std::size_t i = 0; i < first.size(); ++i) {
        if (!first[i].slice) continue;
        std::int64_t all = 0;
        for (int rank = 0; rank < parts; ++rank) all += local_tensors(graph, split, rank)[i].slice->count();
        EXPECT_EQ(all, first[i].slice->all) << entry.key << ' ' << first[i].whole.name;
      }
      EXPECT_LT(local_parameters(graph, split, 0), graph.parameter_count()) << entry.key;
    }
}

TEST(TensorSplit, RefusesWhatRanksCannotShareAndNamesTheNearest) {
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("gpt"), 4); }),
              testing::AllOf(HasSubstr("6 heads"), HasSubstr("parallel.tensor=3 or parallel.tensor=6")));
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("vgg16"), 3); }),
              testing::AllOf(HasSubstr("64 channels"), HasSubstr("parallel.tensor=2 or parallel.tensor=4")));
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("gpt"), 2 * 4 + 1, true); }), HasSubstr("heads"));
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("mlp"), 2, true); }), HasSubstr("parallel.sequence"));
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("mlp", [](ModelConfig& config) { config.hidden = {}; }), 2); }),
              HasSubstr("parallel.tensor=1"));
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("gpt", [](ModelConfig& config) { config.input = {9}; }), 2, true); }),
              testing::AllOf(HasSubstr("9 positions"), HasSubstr("parallel.tensor=3"), HasSubstr("parallel.sequence=false")));
  EXPECT_THAT(message_of<ConfigError>([] { tensor_split(network("gpt", [](ModelConfig& config) { config.input = {7}; }), 2, true); }),
              testing::AllOf(HasSubstr("7 positions"), HasSubstr("choose parallel.sequence=false")));
}

TEST(TensorSplit, OneRankHoldsTheWholeNetwork) {
  const Graph graph = network("gpt");
  const TensorSplit split = tensor_split(graph, 1);
  EXPECT_EQ(local_parameters(graph, split, 0), graph.parameter_count());
  EXPECT_EQ(calls(split, &LayerSplit::forward), 0U);
}

TEST(TensorSplit, ShowsItselfAsATableAndAsJson) {
  const Graph graph = network("gpt");
  const OnMesh mesh{.split = tensor_split(graph, 2)};
  const std::string table = split_table(graph, mesh);
  EXPECT_THAT(table, HasSubstr("72/144x48"));
  EXPECT_THAT(table, HasSubstr("48x96/192"));
  const nlohmann::json json = to_json(graph, mesh);
  EXPECT_EQ(json["layers"].size(), graph.layers().size());
  std::int64_t held = 0;
  for (const auto& layer : json["layers"])
    for (const auto& tensor : layer["tensors"]) held += elements(tensor["local"].get<Shape>());
  EXPECT_EQ(held, json["parameters_of_rank"][0].get<std::int64_t>());
}

/// A text with all of these facts in it.
template <class... Facts>
auto tells(const Facts&... facts) {
  return testing::AllOf(HasSubstr(facts)...);
}

TEST(TensorSplit, NamesTheLayersThatStayWholeAndSaysWhy) {
  const Graph odd = network("mlp", [](ModelConfig& config) { config.hidden = {64, 32, 30, 64, 32}; });
  const auto left_whole = [](const Graph& graph, int parts) { return layers_left_whole(graph, tensor_split(graph, parts)); };
  EXPECT_THAT(left_whole(odd, 4), testing::ElementsAre(tells("fc3", "30 features", "by 4"), tells("fc6", "few")));
  EXPECT_THAT(left_whole(odd, 2), testing::IsEmpty());
  const std::string table = split_table(odd, {.split = tensor_split(odd, 4)});
  const std::string why = tensor_split(odd, 4).layers[index_of(odd, "fc3")].note;
  EXPECT_THAT(why, tells("30 features", "4"));
  EXPECT_THAT(table, HasSubstr("(" + why + ")")) << "in the layer's row";
  EXPECT_THAT(table, HasSubstr("\n" + left_whole(odd, 4).front() + "\n")) << "below the table";
  const nlohmann::json layer = to_json(odd, {.split = tensor_split(odd, 4)})["layers"][index_of(odd, "fc3")];
  EXPECT_EQ(layer["note"], why);

  EXPECT_THAT(left_whole(network("resnet18"), 2),
              testing::Contains(tells("conv1, layer2.0.downsample.0, layer3.0.downsample.0", " 1 more", "pair")));
  EXPECT_THAT(left_whole(network("gpt", [](ModelConfig& config) { config.classes = 4; }), 6),
              testing::ElementsAre(tells("transformer", "4 tokens", "6 ranks"), tells("lm_head", "4 classes", "6 ranks")));
}

TEST(TensorSplit, CountsTheRestOfManyReasonsForLayersThatStayWhole) {
  const Graph graph =
      network("mlp", [](ModelConfig& config) { config.hidden = {64, 64, 30, 512, 512, 31, 512, 512, 33, 512, 512, 34, 512, 512, 35}; });
  const std::vector<std::string> lines = layers_left_whole(graph, tensor_split(graph, 4));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines.back(), testing::StartsWith("3 more")) << "those of 34 and 35 features, and the last one";
}

// Tensor ranks are neighbours, then data-parallel workers, then stages.
TEST(OnMesh, CountsTheParametersOfEveryRank) {
  for (const bool tied : {false, true}) {
    const Graph graph = network("gpt", [&](ModelConfig& config) { config.tied = tied; });
    OnMesh mesh{.split = tensor_split(graph, 2), .stages = cut_stages(counted_costs(graph), {.ranks = 3}), .data = 2};
    const std::vector<std::int64_t> counts = parameters_by_rank(graph, mesh);
    ASSERT_EQ(counts.size(), 12U);
    for (const int tensor : {0, 1}) {
      std::int64_t sum = 0;
      for (std::size_t stage = 0; stage < 3; ++stage) {
        EXPECT_EQ(counts[4 * stage + static_cast<std::size_t>(tensor)], counts[4 * stage + 2 + static_cast<std::size_t>(tensor)]);
        sum += counts[4 * stage + static_cast<std::size_t>(tensor)];
      }
      EXPECT_EQ(sum, local_parameters(graph, mesh.split, tensor)) << "tensor rank " << tensor << ", tied: " << tied;
    }
    const nlohmann::json json = to_json(graph, mesh);
    EXPECT_EQ(json["parameters_of_rank"].get<std::vector<std::int64_t>>(), counts);
    EXPECT_EQ(json["stages"].size(), 3);
    mesh = {.split = tensor_split(graph, 1), .stages = {{0, 1}, {1, units_of(graph).size()}}};
    EXPECT_EQ(parameters_by_rank(graph, mesh)[0], (65 + 12) * 48) << "the embedding";
  }
}

TEST(OnMesh, DividesExpertsAmongTheWorkers) {
  const Graph graph = network("gpt", [](ModelConfig& config) { config.experts = 4; });
  std::int64_t experts = 0;
  for (const Parameter& parameter : graph.parameters())
    if (parameter.spread) experts += elements(parameter.shape);
  ASSERT_GT(experts, 0);
  const std::int64_t each = graph.parameter_count() - experts / 2;
  EXPECT_EQ(parameters_by_rank(graph, {.split = tensor_split(graph, 1), .data = 2}), (std::vector<std::int64_t>{each, each}));
}

}  // namespace
}  // namespace paceline::graph
