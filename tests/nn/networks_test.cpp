// Built-in networks as a whole, forward and backward, on small images: what the graph promised, finite gradients, and the same bits as
// passes without any economy and as a user's loop under autograd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <fmt/format.h>

#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "plain_pass.h"

namespace paceline::nn {
namespace {

constexpr std::int64_t kPictures = 2;

graph::Graph small_graph(const std::string& network) {
  graph::ModelConfig config;
  config.network = network;
  config.classes = 10;
  config.input = {3, 32, 32};
  if (network == "mlp") config.input = {1, 6, 6}, config.hidden = {12, 9}, config.dropout = 0.3;
  if (network == "lenet5") config.input = {1, 28, 28};
  if (network.starts_with("inception")) config.input = {3, 75, 75};
  if (network == "gpt") config.input = {8}, config.layers = 2, config.width = 16, config.dropout = 0.1;
  return graph::make_graph(config);
}

at::Tensor small_batch(const graph::Graph& graph) {
  torch::manual_seed(31);
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), kPictures);
  return shape.size() == 2 ? at::randint(graph.classes(), shape, at::kLong) : at::randn(shape);
}

/// The same chance in each pass.
void reseed() { torch::manual_seed(32); }

/// Everything this file asks of a network.
void check_network(const std::string& network) {
  GraphModule module(small_graph(network), {});
  const at::Tensor batch = small_batch(module.graph());
  graph::Shape logits_shape = module.graph().output();
  logits_shape.insert(logits_shape.begin(), kPictures);
  const at::Tensor probe = at::randn(logits_shape);  // the logits' gradient
  const std::size_t entries = module.arena().entries().size();

  reseed();
  const PlainPass plain = plain_pass(module, batch, {}, [&](const at::Tensor&) { return probe; });

  reseed();
  Trace trace;
  const at::Tensor logits = module.run(batch, {}, &trace);
  module.arena().gradients().fill_(std::numeric_limits<float>::quiet_NaN());
  std::size_t complete_from = entries;
  module.back(probe, {}, trace, [&](std::size_t first, std::size_t last) {
    EXPECT_EQ(last, complete_from) << "entries come once each, from the last to the first";
    EXPECT_LT(first, last);
    for (std::size_t i = first; i < last; ++i)
      EXPECT_TRUE(at::equal(module.arena().gradient(i), plain.gradients[i])) << module.arena().entries()[i].name << ": not complete";
    complete_from = first;
  });
  EXPECT_EQ(complete_from, 0u);
  Pass evaluation;
  evaluation.training = false;
  module.walk(batch, evaluation, [&](std::size_t part, const at::Tensor& output) {
    const graph::Layer& layer = module.graph().layers()[part];
    graph::Shape shape = layer.output;
    shape.insert(shape.begin(), kPictures);
    EXPECT_EQ(output.sizes().vec(), shape) << layer.name;
  });

  EXPECT_TRUE(at::equal(logits, plain.logits));
  for (std::size_t i = 0; i < plain.statistics.size(); ++i)
    EXPECT_TRUE(at::equal(module.statistics().parameter(i), plain.statistics[i])) << module.statistics().entries()[i].name;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < entries; ++i) {
    const at::Tensor gradient = module.arena().gradient(i);
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << module.arena().entries()[i].name;
    moved += gradient.count_nonzero().item<std::int64_t>() > 0;
  }
  EXPECT_EQ(moved, entries) << "every tensor learns";

  module.arena().gradients().zero_();
  reseed();
  (module.forward(batch) * probe).sum().backward();
  for (std::size_t i = 0; i < entries; ++i)
    EXPECT_TRUE(at::equal(module.arena().gradient(i), plain.gradients[i])) << module.arena().entries()[i].name << " under autograd";
}

const std::vector<std::string> kQuick = {"mlp", "lenet5", "cnn", "resnet18", "mobilenet_v1", "inception_v3", "gpt"};

std::vector<std::string> other_networks() {
  std::vector<std::string> names;
  for (const auto& entry : graph::networks())
    if (!testing::Matches(testing::Contains(entry.key))(kQuick)) names.emplace_back(entry.key);
  return names;
}

class Networks : public testing::TestWithParam<std::string> {};
TEST_P(Networks, GivesTheSameBitsInEveryWay) { check_network(GetParam()); }
INSTANTIATE_TEST_SUITE_P(, Networks, testing::ValuesIn(kQuick), [](const auto& row) { return row.param; });

class SlowNetworks : public testing::TestWithParam<std::string> {};
TEST_P(SlowNetworks, GivesTheSameBitsInEveryWay) { check_network(GetParam()); }
INSTANTIATE_TEST_SUITE_P(, SlowNetworks, testing::ValuesIn(other_networks()), [](const auto& row) { return row.param; });

/// The names of torchvision's ResNet-18, by the rule of its modules; `norm` are the tensors of a batch norm.
std::vector<std::string> resnet18_names(const std::vector<std::string>& norm, bool weights) {
  std::vector<std::string> names;
  const auto add_conv = [&](const std::string& conv, const std::string& bn) {
    if (weights) names.push_back(conv + ".weight");
    for (const std::string& tensor : norm) names.push_back(fmt::format("{}.{}", bn, tensor));
  };
  add_conv("conv1", "bn1");
  for (int stage = 1; stage <= 4; ++stage)
    for (int block = 0; block < 2; ++block) {
      const std::string path = fmt::format("layer{}.{}.", stage, block);
      add_conv(path + "conv1", path + "bn1");
      add_conv(path + "conv2", path + "bn2");
      if (stage > 1 && block == 0) add_conv(path + "downsample.0", path + "downsample.1");
    }
  if (weights) names.insert(names.end(), {"fc.weight", "fc.bias"});
  return names;
}

TEST(NetworkNames, AreThoseOfPyTorchsStateDict) {
  GraphModule module(small_graph("resnet18"), {});
  const auto parameters = resnet18_names({"weight", "bias"}, true), buffers = resnet18_names({"running_mean", "running_var"}, false);
  EXPECT_EQ(parameters.size(), 62u);
  EXPECT_EQ(buffers.size(), 40u);
  std::vector<std::string> in_arena;
  for (const tensor::Entry& entry : module.arena().entries()) in_arena.push_back(entry.name);
  EXPECT_THAT(in_arena, testing::ElementsAreArray(parameters)) << "in the order of the state_dict";
  const auto named = module.named_parameters();
  EXPECT_THAT(named.keys(), testing::UnorderedElementsAreArray(parameters));
  EXPECT_THAT(module.named_buffers().keys(), testing::UnorderedElementsAreArray(buffers));
  for (std::size_t i = 0; i < in_arena.size(); ++i) {
    const at::Tensor& parameter = named[in_arena[i]];
    EXPECT_EQ(parameter.data_ptr(), module.arena().parameter(i).data_ptr()) << in_arena[i];
    EXPECT_EQ(parameter.grad().data_ptr(), module.arena().gradient(i).data_ptr()) << in_arena[i];
  }
}

}  // namespace
}  // namespace paceline::nn
