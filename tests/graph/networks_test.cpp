// The built-in networks: the totals of the performance model, PyTorch's names, small images, and what a recipe may not ask for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"

namespace paceline::graph {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

Graph network(const std::string& key, Shape input = {}, std::int64_t classes = 0) {
  ModelConfig config;
  config.network = key;
  config.input = std::move(input);
  config.classes = classes;
  return make_graph(config);
}

std::string refusal(const ModelConfig& config) {
  try {
    make_graph(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

Layer at(const Graph& graph, std::string_view name) {
  const auto found = std::find_if(graph.layers().begin(), graph.layers().end(), [&](const Layer& layer) { return layer.name == name; });
  if (found == graph.layers().end()) throw std::out_of_range(std::string(name));
  return *found;
}

struct Total {
  std::string key;
  Shape input;  // empty: the usual one
  std::int64_t classes;
  std::int64_t parameters, macs;
  std::int64_t conv, fc, pool;
};

std::string key_of(const testing::TestParamInfo<Total>& total) { return total.param.key; }
void PrintTo(const Total& total, std::ostream* out) { *out << total.key << " for " << to_string(total.input); }

class Totals : public testing::TestWithParam<Total> {};

TEST_P(Totals, ComeOutExactly) {
  const Total& total = GetParam();
  const Graph graph = network(total.key, total.input, total.classes);
  EXPECT_EQ(graph.parameter_count(), total.parameters);
  EXPECT_EQ(graph.macs(), total.macs);
  EXPECT_EQ(graph.counts().conv, total.conv);
  EXPECT_EQ(graph.counts().fc, total.fc);
  EXPECT_EQ(graph.counts().pool, total.pool);
}

// The totals of the performance model; MACs to the last digit are sums over layer_tables.csv where it has the network.
const Total kUsual[] = {
    {"alexnet", {}, 0, 61100840, 714188480, 5, 3, 3},
    {"alexnet_ungrouped", {}, 0, 62378344, 1135256096, 5, 3, 3},
    {"vgg16", {}, 0, 138357544, 15470264320, 13, 3, 5},
    {"vgg19", {}, 0, 143667240, 19632062464, 16, 3, 5},
    {"resnet18", {}, 0, 11689512, 1814073344, 20, 1, 1},
    {"resnet50", {}, 0, 25557032, 4089184256, 53, 1, 1},
    {"resnet50_v1", {}, 0, 25557032, 3857973248, 53, 1, 1},
    {"resnet50_v2", {}, 0, 25549480, 3857973248, 53, 1, 1},
    {"resnet50_v2_keras", {}, 0, 25568360, 3482255360, 53, 1, 1},
    {"inception_v3", {}, 0, 23817352, 5713216096, 94, 1, 14},
    {"inception_v3_torchvision", {}, 0, 23834568, 5713216096, 94, 1, 14},
    {"mobilenet_v1", {}, 0, 4231976, 568740352, 27, 1, 0},
    {"lenet5", {}, 0, 61706, 416520, 2, 3, 2},
    {"cnn", {}, 0, 2122186, 7705600, 2, 2, 2},
    {"mlp", {}, 0, 101770, 101632, 0, 2, 0},
};
INSTANTIATE_TEST_SUITE_P(Usual, Totals, testing::ValuesIn(kUsual), key_of);

const Total kSmallImages[] = {
    {"resnet18", {3, 32, 32}, 10, 11173962, 555422720, 20, 1, 0},
    {"resnet50", {3, 32, 32}, 10, 23520842, 1297829888, 53, 1, 0},
    {"lenet5", {3, 32, 32}, 10, 62006, 651720, 2, 3, 2},
};
INSTANTIATE_TEST_SUITE_P(SmallImages, Totals, testing::ValuesIn(kSmallImages), key_of);

TEST(Networks, KerasTotalOfMobileNetCountsStatistics) {
  std::int64_t all = 0;
  for (const Parameter& parameter : network("mobilenet_v1").parameters()) all += elements(parameter.shape);
  EXPECT_EQ(all, 4253864);
}

TEST(Networks, EveryOneEndsInLogitsAndLossAndSumsUp) {
  for (const auto& entry : networks()) {
    const Graph graph = network(std::string(entry.key));
    EXPECT_EQ(graph.network(), entry.key);
    EXPECT_EQ(graph.output().back(), graph.classes()) << entry.key;
    EXPECT_EQ(graph.layers().back().kind, Kind::softmax_loss) << entry.key;
    EXPECT_EQ(graph.layers().back().name, "loss") << entry.key;
    EXPECT_EQ(graph.logits(), static_cast<int>(graph.layers().size()) - 2) << entry.key;

    std::int64_t parameters = 0, macs = 0, bytes = 0, tensors = 0;
    for (const Layer& layer : graph.layers()) {
      parameters += layer.parameters;
      macs += layer.macs;
      bytes += layer.activation_bytes;
      EXPECT_EQ(layer.activation_bytes, 4 * elements(layer.output)) << entry.key << " " << layer.name;
      EXPECT_EQ(layer.gradient_bytes, 4 * layer.parameters) << entry.key << " " << layer.name;
    }
    std::set<std::string> names;
    for (const Parameter& parameter : graph.parameters()) {
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
      if (parameter.trainable) tensors += elements(parameter.shape);
    }
    EXPECT_EQ(graph.parameter_count(), parameters) << entry.key;
    EXPECT_EQ(graph.parameter_count(), tensors) << entry.key;
    EXPECT_EQ(graph.macs(), macs) << entry.key;
    EXPECT_EQ(graph.activation_bytes(), bytes) << entry.key;
  }
}

TEST(Networks, PictureNetworksTakeSmallImages) {
  for (const auto& entry : networks()) {
    if (entry.key == "gpt" || entry.key.starts_with("inception")) continue;
    for (const Shape& input : {Shape{1, 28, 28}, Shape{3, 32, 32}, Shape{3, 64, 64}}) {
      const Graph graph = network(std::string(entry.key), input, 10);
      EXPECT_EQ(graph.output(), (Shape{10})) << entry.key;
      EXPECT_EQ(graph.input(), input) << entry.key;
    }
  }
}

TEST(Networks, SmallStemsKeepTheResolution) {
  EXPECT_EQ(at(network("resnet18", {3, 32, 32}, 10), "conv1").output, (Shape{64, 32, 32}));
  EXPECT_EQ(at(network("resnet18", {3, 32, 32}, 10), "layer4.1.conv2").output, (Shape{512, 4, 4}));
  EXPECT_EQ(at(network("resnet50_v2", {3, 32, 32}, 10), "conv1").output, (Shape{64, 32, 32}));
  EXPECT_EQ(at(network("mobilenet_v1", {3, 32, 32}, 10), "conv1").output, (Shape{32, 32, 32}));
  EXPECT_EQ(at(network("alexnet", {3, 32, 32}, 10), "features.0").output, (Shape{64, 32, 32}));
  EXPECT_EQ(at(network("lenet5", {1, 28, 28}), "conv1").output, (Shape{6, 28, 28}));
  EXPECT_EQ(at(network("lenet5", {3, 32, 32}), "conv1").output, (Shape{6, 28, 28}));
}

TEST(Networks, LargerImagesKeepTheFullForm) {
  EXPECT_EQ(at(network("vgg16", {3, 256, 320}), "avgpool").output, (Shape{512, 7, 7}));
  EXPECT_EQ(network("vgg16", {3, 256, 320}).parameter_count(), 138357544);
  EXPECT_EQ(network("resnet50", {3, 65, 65}).parameter_count(), 25557032);
  EXPECT_EQ(network("inception_v3", {3, 75, 75}).parameter_count(), 23817352);
}

TEST(Networks, RefusedInputsSayWhatIsTaken) {
  ModelConfig config;
  config.network = "inception_v3";
  config.input = {3, 32, 32};
  EXPECT_THAT(refusal(config),
              HasSubstr("'inception_v3' takes images [channels, height, width] of at least 75x75 pixels, not 3x32x32; set model.input"));
  config.network = "resnet18";
  config.input = {3, 224};
  EXPECT_THAT(refusal(config), HasSubstr("takes images"));
  config.network = "gpt";
  config.input = {3, 32, 32};
  EXPECT_THAT(refusal(config), HasSubstr("takes rows of tokens [positions], not 3x32x32; use data.name=text"));
  config.network = "lenet5";
  config.input = {1, 20, 20};
  EXPECT_THAT(refusal(config), HasSubstr("at least 28x28"));
  config.network = "resnet";
  EXPECT_THAT(refusal(config), HasSubstr("unknown network 'resnet'"));
}

TEST(Networks, WhatPassesTheCheckOfTheInputPassesEveryLayer) {
  for (const auto& entry : networks()) {
    if (entry.key == "gpt") continue;
    for (std::int64_t side = 1; side <= 80; ++side)
      for (std::int64_t width : {side, std::int64_t{200}}) {
        ModelConfig config;
        config.network = entry.key;
        config.input = {3, side, width};
        const std::string answer = refusal(config);
        EXPECT_TRUE(answer == "accepted" || answer.find("takes images") != std::string::npos) << answer;
      }
  }
}

TEST(Networks, SettingsWithoutUseAreRefused) {
  ModelConfig config;
  config.network = "resnet18";
  config.dropout = 0.3;
  EXPECT_THAT(refusal(config), HasSubstr("'resnet18' has no dropout"));
  config.dropout = -1;
  config.zero_init_residual = true;
  EXPECT_EQ(refusal(config), "accepted");
  config.network = "resnet50_v2";
  EXPECT_THAT(refusal(config), HasSubstr("no norm at the end of a residual block"));
  config.zero_init_residual = false, config.multiplier = 0.5;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("model.multiplier=0.5"), HasSubstr("resnet50_v2")));
}

TEST(Networks, AMultiplierScalesTheChannels) {
  for (const std::string key : {"resnet18", "resnet20", "resnet50", "vgg16", "alexnet", "mobilenet_v1", "cnn"}) {
    ModelConfig config;
    config.network = key, config.input = {3, 32, 32}, config.classes = 10, config.multiplier = 0.5;
    const Graph whole = network(key, {3, 32, 32}, 10), half = make_graph(config);
    ASSERT_EQ(half.layers().size(), whole.layers().size()) << key;
    for (std::size_t i = 0; i < whole.layers().size(); ++i) {
      const Layer &full = whole.layers()[i], &narrow = half.layers()[i];
      if (full.kind != Kind::conv) continue;
      EXPECT_EQ(narrow.channels, std::max<std::int64_t>(full.channels / 2, 8)) << key << ' ' << full.name;
    }
    EXPECT_EQ(half.output(), whole.output());
  }
}

TEST(Networks, ZeroInitReachesTheLastNormOfEachBlock) {
  ModelConfig config;
  config.network = "resnet50";
  config.zero_init_residual = true;
  int zeros = 0;
  const Graph graph = make_graph(config);
  for (const Layer& layer : graph.layers()) {
    if (layer.init != Init::zero) continue;
    ++zeros;
    EXPECT_THAT(layer.name, testing::EndsWith(".bn3"));
  }
  EXPECT_EQ(zeros, 16);
}

TEST(Networks, DropoutFollowsTheRecipe) {
  ModelConfig config;
  config.network = "vgg16";
  EXPECT_EQ(at(make_graph(config), "classifier.2").probability, 0.5);
  config.dropout = 0.1;
  EXPECT_EQ(at(make_graph(config), "classifier.2").probability, 0.1);
  config.network = "mlp";
  EXPECT_EQ(at(make_graph(config), "dropout_1").probability, 0.1);
}

// Names, shapes and order of torchvision's state_dict (num_batches_tracked left out).
TEST(Networks, ResNet50BearsTorchvisionsNames) {
  std::vector<std::string> expected;
  const auto conv = [&](const std::string& name, const std::string& shape) { expected.push_back(name + ".weight " + shape); };
  const auto bn = [&](const std::string& name, int channels) {
    for (const char* suffix : {".weight", ".bias", ".running_mean", ".running_var"})
      expected.push_back(name + suffix + " " + std::to_string(channels));
  };
  const auto shape = [](int out, int in, int side) { return to_string({out, in, side, side}); };
  conv("conv1", "64x3x7x7");
  bn("bn1", 64);
  int inputs = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      const int width = 64 << stage;
      conv(name + ".conv1", shape(width, inputs, 1)), bn(name + ".bn1", width);
      conv(name + ".conv2", shape(width, width, 3)), bn(name + ".bn2", width);
      conv(name + ".conv3", shape(4 * width, width, 1)), bn(name + ".bn3", 4 * width);
      if (block == 0) conv(name + ".downsample.0", shape(4 * width, inputs, 1)), bn(name + ".downsample.1", 4 * width);
      inputs = 4 * width;
    }
  expected.push_back("fc.weight 1000x2048");
  expected.push_back("fc.bias 1000");

  std::vector<std::string> actual;
  for (const Parameter& parameter : network("resnet50").parameters()) actual.push_back(parameter.name + " " + to_string(parameter.shape));
  EXPECT_EQ(actual.size(), 267u);  // torchvision's 320 entries less the 53 num_batches_tracked
  EXPECT_THAT(actual, ElementsAreArray(expected));
}

std::vector<std::string> weights(const Graph& graph) {
  std::vector<std::string> names;
  for (const Parameter& parameter : graph.parameters())
    if (parameter.name.ends_with(".weight")) names.push_back(parameter.name.substr(0, parameter.name.size() - 7));
  return names;
}

TEST(Networks, SequentialNetworksBearTorchvisionsIndices) {
  EXPECT_THAT(weights(network("alexnet")), ElementsAre("features.0", "features.3", "features.6", "features.8", "features.10",
                                                       "classifier.1", "classifier.4", "classifier.6"));
  EXPECT_THAT(weights(network("vgg16")), ElementsAre("features.0", "features.2", "features.5", "features.7", "features.10", "features.12",
                                                     "features.14", "features.17", "features.19", "features.21", "features.24",
                                                     "features.26", "features.28", "classifier.0", "classifier.3", "classifier.6"));
  EXPECT_THAT(weights(network("vgg19")),
              ElementsAre("features.0", "features.2", "features.5", "features.7", "features.10", "features.12", "features.14",
                          "features.16", "features.19", "features.21", "features.23", "features.25", "features.28", "features.30",
                          "features.32", "features.34", "classifier.0", "classifier.3", "classifier.6"));
}

TEST(Networks, InceptionBearsTorchvisionsNames) {
  const Graph graph = network("inception_v3_torchvision");
  std::vector<std::string> names = weights(graph);
  ASSERT_EQ(names.size(), 94u * 2 + 1);
  EXPECT_EQ(names[0], "Conv2d_1a_3x3.conv");
  EXPECT_EQ(names[1], "Conv2d_1a_3x3.bn");
  EXPECT_EQ(names[10], "Mixed_5b.branch1x1.conv");
  EXPECT_EQ(names.back(), "fc");
  std::vector<std::string> last_module;
  for (const std::string& name : names)
    if (name.starts_with("Mixed_7c.") && name.ends_with(".conv")) last_module.push_back(name.substr(9, name.size() - 14));
  EXPECT_THAT(last_module, ElementsAre("branch1x1", "branch3x3_1", "branch3x3_2a", "branch3x3_2b", "branch3x3dbl_1", "branch3x3dbl_2",
                                       "branch3x3dbl_3a", "branch3x3dbl_3b", "branch_pool"));
  EXPECT_EQ(at(graph, "Mixed_5b").output, (Shape{256, 35, 35}));
  EXPECT_EQ(at(graph, "Mixed_6a").output, (Shape{768, 17, 17}));
  EXPECT_EQ(at(graph, "Mixed_7a").output, (Shape{1280, 8, 8}));
  EXPECT_EQ(at(graph, "Mixed_7c").output, (Shape{2048, 8, 8}));
  EXPECT_EQ(at(graph, "Mixed_7c.branch1x1.bn").epsilon, 1e-3);
}

TEST(Networks, FirstWeightsFollowTheReference) {
  EXPECT_EQ(at(network("resnet50"), "layer1.0.conv1").init, Init::kaiming_fan_out);
  EXPECT_EQ(at(network("resnet50"), "fc").init, Init::standard);
  EXPECT_EQ(at(network("vgg16"), "features.0").init, Init::kaiming_fan_out);
  EXPECT_EQ(at(network("vgg16"), "classifier.6").init, Init::normal);
  EXPECT_EQ(at(network("vgg16"), "classifier.6").init_std, 0.01);
  EXPECT_EQ(at(network("inception_v3"), "fc").init, Init::truncated_normal);
  EXPECT_EQ(at(network("inception_v3"), "fc").init_std, 0.1);
  EXPECT_EQ(at(network("alexnet"), "features.0").init, Init::standard);
}

TEST(Networks, MlpTakesItsWidthsAndAnyInput) {
  ModelConfig config;
  config.network = "mlp", config.input = {3, 5, 7}, config.classes = 4;
  config.hidden = {20, 30};
  const Graph graph = make_graph(config);
  EXPECT_THAT(weights(graph), ElementsAre("fc1", "fc2", "fc3"));
  EXPECT_EQ(graph.parameter_count(), 105 * 20 + 20 + 20 * 30 + 30 + 30 * 4 + 4);
  config.hidden = {};
  config.input = {8};
  EXPECT_EQ(make_graph(config).parameter_count(), 8 * 4 + 4);
}

TEST(ModelConfig, BindsToARecipe) {
  ModelConfig model;
  Config config;
  config.bind("model", "the network", model);
  config.set("model.network=resnet50");
  config.set("model.input=[3, 32, 32]");
  config.set("model.classes=10");
  EXPECT_EQ(make_graph(model).parameter_count(), 23520842);
  EXPECT_THROW(config.set("model.network=resnet51"), ConfigError);
  EXPECT_THROW(config.set("model.input=[0, 32, 32]"), ConfigError);
  EXPECT_THROW(config.set("model.dropout=1.5"), ConfigError);
}

}  // namespace
}  // namespace paceline::graph
