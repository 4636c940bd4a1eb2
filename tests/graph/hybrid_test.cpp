// Which layers data-parallel workers share, in which form, and what that costs.
#include "paceline/graph/hybrid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/split_table.h"
#include "tests/message_of.h"

namespace paceline::graph {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Graph hybrid_network(const std::string& key, std::vector<std::int64_t> hidden = {64, 32, 16}) {
  ModelConfig config;
  config.network = key, config.hidden = std::move(hidden);
  return make_graph(config);
}

const LayerSplit& layer_of(const Graph& graph, const TensorSplit& split, std::string_view name) {
  for (std::size_t i = 0; i < graph.layers().size(); ++i)
    if (graph.layers()[i].name == name) return split.layers[i];
  throw InternalError("no layer " + std::string(name));
}

std::vector<Exchange> exchanges(const std::vector<Traffic>& traffic) {
  std::vector<Exchange> list;
  for (const Traffic& one : traffic) list.push_back(one.exchange);
  return list;
}

TEST(HybridSplit, AlexNetSendsActivationsOfItsClassifier) {
  const Graph graph = hybrid_network("alexnet");
  const TensorSplit split = hybrid_split(graph, "auto", 4, 256);
  const LayerSplit &fc6 = layer_of(graph, split, "classifier.1"), &fc7 = layer_of(graph, split, "classifier.4"),
                   &fc8 = layer_of(graph, split, "classifier.6");
  EXPECT_EQ(fc6.form, Form::row) << "alone";
  EXPECT_EQ(exchanges(fc6.forward), (std::vector{Exchange::all_to_all, Exchange::reduce_scatter}));
  EXPECT_EQ(exchanges(fc6.backward), (std::vector{Exchange::all_gather, Exchange::all_to_all}));
  EXPECT_EQ(fc7.form, Form::column);
  EXPECT_EQ(exchanges(fc7.forward), std::vector{Exchange::all_gather});
  EXPECT_EQ(exchanges(fc7.backward), std::vector{Exchange::reduce_scatter});
  EXPECT_EQ(fc8.form, Form::row);
  EXPECT_EQ(fc8.input, Layout::channels);
  EXPECT_EQ(fc8.output, Layout::samples) << "the loss is that of the worker's own samples";
  EXPECT_FALSE(split.splits_logits(graph));
  EXPECT_EQ(layer_of(graph, split, "features.0").form, Form::whole);

  // Each way: fc6 swaps 9216 features and scatters 4096, the pair gathers 4096 and scatters 1000.
  const HybridBytes bytes = hybrid_bytes(graph, split);
  EXPECT_EQ(bytes.activations, 2 * 256 * 4 * 3 * (9216 / 4 + 4096 + 4096 + 1000) / 4);
  EXPECT_EQ(bytes.gradients, 2 * 3 * (9216 * 4096 + 4096 * 4096 + 4096 + 4096 * 1000));
}

TEST(HybridSplit, AutoLeavesLayersWhoseGradientsAreFewerBytes) {
  const Graph graph = hybrid_network("alexnet");
  // A row sends 2·(9216/4 + 4096) elements for each sample, an allreduce 2·9216·4096 altogether.
  const std::int64_t even = 9216 * 4096 / (9216 / 4 + 4096);
  EXPECT_EQ(layer_of(graph, hybrid_split(graph, "auto", 4, even - 1), "classifier.1").form, Form::row);
  const TensorSplit split = hybrid_split(graph, "auto", 4, even + 1);
  EXPECT_EQ(layer_of(graph, split, "classifier.1").form, Form::whole);
  EXPECT_THAT(split_table(graph, {.split = split, .data = 4}), HasSubstr("whole (gradients have fewer bytes)"));
  EXPECT_FALSE(hybrid_split(graph, "auto", 4, 1 << 20).splits_anything());
  EXPECT_EQ(layer_of(graph, hybrid_split(graph, "classifier.1", 4, 1 << 20), "classifier.1").form, Form::row) << "asked for by name";
}

TEST(HybridSplit, SaysWhyNothingIsSplit) {
  const Graph graph = hybrid_network("alexnet");
  EXPECT_THAT(describe_hybrid(graph, hybrid_split(graph, "auto", 4, 1 << 20)), HasSubstr("fewer bytes"));
  EXPECT_THAT(describe_hybrid(graph, hybrid_split(graph, "auto", 7, 32)), AllOf(HasSubstr("7 workers"), Not(HasSubstr("fewer bytes"))));
  EXPECT_THAT(describe_hybrid(graph, hybrid_split(graph, "auto", 1, 32)), HasSubstr("one worker"));
}

TEST(HybridSplit, LeavesATiedHeadWhole) {
  ModelConfig config;
  config.network = "gpt", config.tied = true;
  const Graph graph = make_graph(config);
  EXPECT_EQ(layer_of(graph, hybrid_split(graph, "auto", 2, 1), "lm_head").form, Form::whole);
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(graph, "lm_head", 2, 1); }), AllOf(HasSubstr("lm_head"), HasSubstr("model.tied")));
}

TEST(HybridSplit, NamesSayWhichLayers) {
  const Graph graph = hybrid_network("mlp");
  const TensorSplit split = hybrid_split(graph, "fc2, fc3", 2, 32);
  EXPECT_EQ(layer_of(graph, split, "fc1").form, Form::whole);
  EXPECT_EQ(layer_of(graph, split, "fc2").form, Form::column);
  EXPECT_EQ(layer_of(graph, split, "relu_2").form, Form::follows);
  EXPECT_EQ(layer_of(graph, split, "fc3").form, Form::row);
  EXPECT_EQ(layer_of(graph, split, "fc4").form, Form::whole);
  EXPECT_EQ(layer_of(graph, hybrid_split(graph, "fc*", 2, 32), "fc4").form, Form::row);
  EXPECT_TRUE(layer_of(graph, hybrid_split(graph, "fc1", 2, 32), "fc1").backward.size() == 1) << "nothing before it wants a gradient";
  EXPECT_EQ(local_parameters(graph, hybrid_split(graph, "fc*", 1, 32), 0), graph.parameter_count());
}

TEST(HybridSplit, RefusesWhatCannotBeSplit) {
  const Graph graph = hybrid_network("mlp", {63, 9, 33});
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(graph, "fc3", 4, 32); }),
              AllOf(HasSubstr("'fc3'"), HasSubstr("parallel.hybrid"), HasSubstr("33"), HasSubstr("parallel.data=3")));
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(graph, "fc9", 4, 32); }), AllOf(HasSubstr("'fc9'"), HasSubstr("did you mean")));
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(graph, "conv*", 4, 32); }), AllOf(HasSubstr("conv*"), HasSubstr("fc1")));
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(graph, "relu_1", 4, 32); }), AllOf(HasSubstr("is a relu"), HasSubstr("fc2")));
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(graph, " , ", 4, 32); }), AllOf(HasSubstr("parallel.hybrid"), HasSubstr("fc1")));
  EXPECT_EQ(layer_of(graph, hybrid_split(graph, "auto", 4, 1), "fc3").note, "9 and 33 features do not divide by 4");
  EXPECT_THAT(message_of<ConfigError>([&] { hybrid_split(hybrid_network("alexnet"), "features.0", 4, 32); }), HasSubstr("is a conv"));
}

TEST(HybridSplit, ShowsItselfAsATableAndAsJson) {
  const Graph graph = hybrid_network("alexnet");
  const TensorSplit split = hybrid_split(graph, "auto", 4, 256);
  const OnMesh mesh{.split = split, .data = 4};
  const std::string table = split_table(graph, mesh);
  EXPECT_THAT(table, AllOf(HasSubstr("1024/4096x4096"), HasSubstr("1000x1024/4096"), HasSubstr("all_to_all 36,864")));
  EXPECT_THAT(table, HasSubstr("hybrid over data=4"));
  const nlohmann::json json = to_json(graph, mesh);
  EXPECT_EQ(json["data"], 4);
  EXPECT_EQ(json["batch"], 256);
  EXPECT_EQ(json["bytes_of_step"]["activations"], hybrid_bytes(graph, split).activations);
  EXPECT_EQ(json["parameters_of_rank"].size(), 4);
  EXPECT_LT(json["parameters_of_rank"][0].get<std::int64_t>(), graph.parameter_count() / 3);
}

}  // namespace
}  // namespace paceline::graph
