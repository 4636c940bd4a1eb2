// First values: the distribution of every Init, and that a seed alone decides them.
#include "paceline/nn/init.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "paceline/base/random.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"

namespace paceline::nn {
namespace {

using graph::Init;
using graph::Kind;
using graph::Layer;

struct Drawn {
  std::vector<at::Tensor> parameters, statistics;
};

/// First values of a single layer on this input.
Drawn draw(const graph::Shape& input, Kind kind, void (*set)(Layer&), std::uint64_t seed = 5) {
  graph::Graph graph("tiny", input, 1);
  Layer layer;
  layer.name = "layer";
  layer.kind = kind;
  layer.inputs = {0};
  set(layer);
  graph.append(layer);
  GraphModule::Options options;
  options.seed = seed;
  GraphModule module(graph, options);
  Drawn drawn;
  for (std::size_t i = 0; i < module.arena().entries().size(); ++i) drawn.parameters.push_back(module.arena().parameter(i).clone());
  for (std::size_t i = 0; i < module.statistics().entries().size(); ++i)
    drawn.statistics.push_back(module.statistics().parameter(i).clone());
  return drawn;
}

double mean_of(const at::Tensor& values) { return values.mean().item<double>(); }
double deviation_of(const at::Tensor& values) { return values.std().item<double>(); }
double share_beyond(const at::Tensor& values, double bound) { return values.abs().gt(bound).to(at::kDouble).mean().item<double>(); }

/// Six standard errors: the draws are fixed, so this either holds or does not, but a right distribution practically always passes.
void expect_moments(const at::Tensor& values, double expected_deviation) {
  const double error = 6 / std::sqrt(static_cast<double>(values.numel()));
  EXPECT_NEAR(mean_of(values), 0, error * expected_deviation);
  EXPECT_NEAR(deviation_of(values) / expected_deviation, 1, error);
}

void expect_normal(const at::Tensor& values, double expected_deviation) {
  expect_moments(values, expected_deviation);
  const double error = 3 / std::sqrt(static_cast<double>(values.numel()));
  EXPECT_NEAR(share_beyond(values, expected_deviation), 0.3173, error);
  EXPECT_NEAR(share_beyond(values, 2 * expected_deviation), 0.0455, error);
}

void expect_uniform(const at::Tensor& values, double bound) {
  expect_moments(values, bound / std::sqrt(3.0));
  EXPECT_LE(values.abs().max().item<double>(), bound);
  EXPECT_GT(values.abs().max().item<double>(), 0.999 * bound);
  EXPECT_NEAR(share_beyond(values, bound / 2), 0.5, 3 / std::sqrt(static_cast<double>(values.numel())));
}

void expect_constant(const at::Tensor& values, float constant) { EXPECT_TRUE(at::equal(values, at::full_like(values, constant))); }

void conv(Layer& l) { l.channels = 300, l.kernel_h = 3, l.kernel_w = 5; }
void fc(Layer& l) { l.channels = 500; }

TEST(Init, StandardConvolutionIsUniformByFanIn) {
  const Drawn drawn = draw({20, 8, 8}, Kind::conv, conv);
  expect_uniform(drawn.parameters[0], 1 / std::sqrt(20.0 * 15));
  EXPECT_LE(drawn.parameters[1].abs().max().item<double>(), 1 / std::sqrt(20.0 * 15));
  EXPECT_GT(deviation_of(drawn.parameters[1]), 0.5 / std::sqrt(20.0 * 15));
  const Drawn grouped = draw({20, 8, 8}, Kind::conv, [](Layer& l) { conv(l), l.groups = 5; });
  expect_uniform(grouped.parameters[0], 1 / std::sqrt(4.0 * 15));
}

TEST(Init, StandardMatrixIsUniformByFanIn) {
  const Drawn drawn = draw({160}, Kind::fc, fc);
  expect_uniform(drawn.parameters[0], 1 / std::sqrt(160.0));
  EXPECT_LE(drawn.parameters[1].abs().max().item<double>(), 1 / std::sqrt(160.0));
  EXPECT_FALSE(at::equal(drawn.parameters[0].flatten().narrow(0, 0, 500), drawn.parameters[1])) << "each tensor has a stream of its own";
}

TEST(Init, StandardEmbeddingIsNormal) {
  const Drawn drawn = draw({8}, Kind::embedding, [](Layer& l) { l.vocabulary = 700, l.channels = 100, l.positions = 300; });
  expect_normal(drawn.parameters[0], 1);
  expect_normal(drawn.parameters[1], 1);
}

TEST(Init, NormsBeginAtOneAndZero) {
  const Drawn batch = draw({6, 2, 2}, Kind::batch_norm, [](Layer&) {});
  expect_constant(batch.parameters[0], 1);
  expect_constant(batch.parameters[1], 0);
  expect_constant(batch.statistics[0], 0);  // running mean
  expect_constant(batch.statistics[1], 1);  // running variance
  const Drawn unscaled = draw({6, 2, 2}, Kind::batch_norm, [](Layer& l) { l.scale = false; });
  ASSERT_EQ(unscaled.parameters.size(), 1u);
  expect_constant(unscaled.parameters[0], 0);
  const Drawn layer = draw({6}, Kind::layer_norm, [](Layer&) {});
  expect_constant(layer.parameters[0], 1);
  expect_constant(layer.parameters[1], 0);
}

TEST(Init, ZeroIsZero) {
  const Drawn norm = draw({6, 2, 2}, Kind::batch_norm, [](Layer& l) { l.init = Init::zero; });
  expect_constant(norm.parameters[0], 0);
  expect_constant(norm.parameters[1], 0);
  expect_constant(norm.statistics[1], 1);
  const Drawn matrix = draw({160}, Kind::fc, [](Layer& l) { fc(l), l.init = Init::zero; });
  expect_constant(matrix.parameters[0], 0);
  expect_constant(matrix.parameters[1], 0);
}

TEST(Init, KaimingFanOutIsNormal) {
  const Drawn drawn = draw({20, 8, 8}, Kind::conv, [](Layer& l) { conv(l), l.init = Init::kaiming_fan_out; });
  expect_normal(drawn.parameters[0], std::sqrt(2 / (300.0 * 15)));
  expect_constant(drawn.parameters[1], 0);
}

TEST(Init, NormalHasTheDeviationOfTheLayer) {
  const Drawn drawn = draw({160}, Kind::fc, [](Layer& l) { fc(l), l.init = Init::normal, l.init_std = 0.03; });
  expect_normal(drawn.parameters[0], 0.03);
  expect_constant(drawn.parameters[1], 0);
}

TEST(Init, NormalDrawsTheProjectionOfAttentionApart) {
  const Drawn drawn =
      draw({4, 160}, Kind::attention, [](Layer& l) { l.heads = 4, l.init = Init::normal, l.init_std = 0.02, l.projection_std = 0.005; });
  expect_normal(drawn.parameters[0], 0.02);
  expect_constant(drawn.parameters[1], 0);
  expect_normal(drawn.parameters[2], 0.005);
  expect_constant(drawn.parameters[3], 0);
}

TEST(Init, TruncatedNormalEndsAtTwoDeviations) {
  const Drawn drawn = draw({160}, Kind::fc, [](Layer& l) { fc(l), l.init = Init::truncated_normal, l.init_std = 0.1; });
  const at::Tensor& weight = drawn.parameters[0];
  const double error = 3 / std::sqrt(static_cast<double>(weight.numel()));
  expect_moments(weight, 0.1 * 0.879626);  // √(1 − 4φ(2)/(Φ(2) − Φ(−2)))
  EXPECT_LE(weight.abs().max().item<double>(), 0.2 + 1e-7);
  EXPECT_GT(weight.abs().max().item<double>(), 0.199);
  EXPECT_NEAR(share_beyond(weight, 0.1), 0.28475, error);  // (Φ(2) − Φ(1)) / (Φ(2) − ½)
  EXPECT_NEAR(share_beyond(weight, 0.18), 0.02763, error);
  EXPECT_LE(drawn.parameters[1].abs().max().item<double>(), 1 / std::sqrt(160.0)) << "the bias is drawn as usual";
  EXPECT_GT(deviation_of(drawn.parameters[1]), 0);
}

TEST(Init, LongTensorsAreOneStream) {
  // 80,000 values: more than one chunk of the parallel fill.
  const at::Tensor uniform = draw({160}, Kind::fc, fc).parameters[0].flatten();
  const at::Tensor normal = draw({160}, Kind::fc, [](Layer& l) { fc(l), l.init = Init::normal, l.init_std = 1; }).parameters[0].flatten();
  RandomStream uniform_stream(5, Purpose::init, 0), normal_stream(5, Purpose::init, 0);
  const float bound = static_cast<float>(1 / std::sqrt(160.0));
  const auto *u = uniform.data_ptr<float>(), *n = normal.data_ptr<float>();
  std::int64_t differ = 0;
  for (std::int64_t i = 0; i < uniform.numel(); ++i)
    differ += u[i] != uniform_stream.uniform(-bound, bound) || n[i] != normal_stream.normal();
  EXPECT_EQ(differ, 0);
}

at::Tensor first_bits(const char* network, std::uint64_t seed) {
  graph::ModelConfig config;
  config.network = network;
  if (config.network == "resnet18") config.input = {3, 32, 32};
  GraphModule::Options options;
  options.seed = seed;
  return GraphModule(graph::make_graph(config), options).arena().parameters().clone();
}

TEST(Init, OfARecipeIsTheReferencesOrThatOfPyTorchsLayers) {
  graph::ModelConfig config;
  config.network = "resnet18", config.input = {3, 32, 32}, config.zero_init_residual = true;
  const auto weight = [&](const std::string& init, const std::string& name) {
    config.init = init;
    GraphModule module(graph::make_graph(config), {});
    const auto& entries = module.arena().entries();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].name == name) return module.arena().parameter(i).clone();
    throw std::runtime_error(name);
  };
  const char* conv = "layer2.0.conv1.weight";  // 128 × 64 × 3 × 3
  expect_normal(weight("reference", conv), std::sqrt(2 / (128.0 * 9)));
  expect_uniform(weight("pytorch", conv), 1 / std::sqrt(64.0 * 9));
  EXPECT_NEAR(deviation_of(weight("reference", conv)) / deviation_of(weight("pytorch", conv)), std::sqrt(2 * 64 * 3.0 / 128), 0.02);
  expect_constant(weight("pytorch", "layer2.0.bn2.weight"), 0);  // what a recipe asks for stays
  EXPECT_TRUE(at::equal(weight("pytorch", "fc.weight"), weight("reference", "fc.weight")));
  config.zero_init_residual = false;
  config.init = "reference";
  EXPECT_TRUE(at::equal(GraphModule(graph::make_graph(config), {.seed = 7}).arena().parameters(), first_bits("resnet18", 7)));
}

TEST(Init, TheSeedDecidesAndNotTheThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = first_bits("resnet18", 7);
  at::set_num_threads(2);
  const at::Tensor two = first_bits("resnet18", 7);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one, two));
}

TEST(Init, SeedsDiffer) {
  const at::Tensor first = first_bits("lenet5", 0), second = first_bits("lenet5", 1);
  EXPECT_TRUE(at::equal(first, first_bits("lenet5", 0)));
  const double drawn = static_cast<double>(first.count_nonzero().item<std::int64_t>());
  EXPECT_GT(static_cast<double>(first.ne(second).sum().item<std::int64_t>()), 0.999 * drawn);
}

TEST(Init, DoublesHoldTheSameValues) {
  graph::ModelConfig config;
  GraphModule::Options options;
  options.dtype = at::kDouble;
  EXPECT_TRUE(at::equal(GraphModule(graph::make_graph(config), options).arena().parameters().to(at::kFloat), first_bits("lenet5", 0)));
}

}  // namespace
}  // namespace paceline::nn
