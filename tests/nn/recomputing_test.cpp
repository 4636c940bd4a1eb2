// Activation recomputation: the same bits as without it for all built-in networks and for a user's modules, with dropout, batch norms,
// lower precision, micro-batches and gradients of weights put off; and less that a trace holds.
#include "paceline/nn/recomputing_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/utils.h>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/module_model.h"
#include "tests/message_of.h"

namespace paceline::nn::recomputing_test {
namespace {

constexpr std::int64_t kSamples = 4;
constexpr Recompute kKinds[] = {Recompute::units, Recompute::all};

struct Sample {
  std::string name;
  std::shared_ptr<Model> model;
  at::Tensor batch;
};

graph::Graph graph_of(const std::string& network) {
  graph::ModelConfig config;
  config.network = network, config.classes = 10, config.input = {3, 32, 32};
  if (network == "mlp") config.input = {1, 6, 6}, config.hidden = {12, 9, 7, 6}, config.dropout = 0.3;
  if (network == "lenet5") config.input = {1, 28, 28};
  if (network.starts_with("inception")) config.input = {3, 75, 75};
  if (network == "gpt") config.input = {8}, config.layers = 4, config.width = 16, config.dropout = 0.1;
  return graph::make_graph(config);
}

Sample built_in(const std::string& network, tensor::Precision precision = tensor::Precision::fp32) {
  const graph::Graph graph = graph_of(network);
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), kSamples);
  GraphModule::Options options;
  options.precision = precision;
  return {network, std::make_shared<GraphModule>(graph, options), shape.size() == 2 ? at::randint(10, shape, at::kLong) : at::randn(shape)};
}

Sample users_sequence() {
  using namespace torch::nn;
  const Sequential net(Conv2d(Conv2dOptions(3, 8, 3).padding(1).bias(false)), BatchNorm2d(8), ReLU(ReLUOptions(true)), Dropout(0.4),
                       Conv2d(Conv2dOptions(8, 4, 3).stride(2)), Tanh(), Flatten(), Dropout(0.2), Linear(4 * 7 * 7, 10));
  return {"sequence", std::make_shared<ModuleModel>(net), at::randn({kSamples, 3, 16, 16})};
}

/// Everything that two micro-batches leave: outputs, gradients, statistics, and where LibTorch's generator then stands.
struct Left {
  std::vector<at::Tensor> outputs;
  at::Tensor gradients, statistics, chance;
};

using PassOver = std::function<at::Tensor(Model&, const at::Tensor& batch, const Pass&)>;

at::Tensor probe_for(const at::Tensor& output) { return output.detach().cos(); }

at::Tensor whole_pass(Model& model, const at::Tensor& batch, const Pass& pass) {
  Trace trace;
  const at::Tensor output = model.run(batch, pass, &trace);
  model.back(probe_for(output), pass, trace);
  return output;
}

/// Afterwards the model is as it was.
Left leave(Model& model, const at::Tensor& batch, const PassOver& pass_over) {
  const at::Tensor statistics = model.statistics().parameters().clone();
  model.arena().gradients().fill_(std::nan(""));
  torch::manual_seed(5);
  Pass pass;
  const auto masks = model.takes_masks() ? make_masks(c10::kCPU) : nullptr;
  pass.masks = masks.get();
  Left left;
  for (const std::int64_t begin : {0, 2}) {
    pass.accumulate = begin > 0, pass.chance = static_cast<std::uint64_t>(begin);
    left.outputs.push_back(pass_over(model, batch.narrow(0, begin, 2), pass));
  }
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < model.arena().entries().size(); ++i) gradients.push_back(model.arena().gradient(i).flatten());
  left.gradients = at::cat(gradients);
  left.statistics = model.statistics().parameters().clone();
  left.chance = at::detail::getDefaultCPUGenerator().get_state();
  at::Tensor(model.statistics().parameters()).copy_(statistics);
  return left;
}

void expect_same(const Left& left, const Left& right, const std::string& what) {
  for (std::size_t i = 0; i < left.outputs.size(); ++i) EXPECT_TRUE(at::equal(left.outputs[i], right.outputs[i])) << what;
  EXPECT_TRUE(at::equal(left.gradients, right.gradients)) << what;
  EXPECT_TRUE(at::equal(left.statistics, right.statistics)) << what;
  EXPECT_TRUE(at::equal(left.chance, right.chance)) << what << ": the next pass would draw other masks";
}

void expect_same_bits(const Sample& sample, const PassOver& pass_over = whole_pass) {
  const Left plain = leave(*sample.model, sample.batch, whole_pass);
  for (const Recompute kind : kKinds) {
    RecomputingModel model(sample.model, kind);
    expect_same(leave(model, sample.batch, pass_over), plain, sample.name + (kind == Recompute::all ? ", all" : ", units"));
  }
}

class EveryNetwork : public testing::TestWithParam<std::string> {};

TEST_P(EveryNetwork, HasTheSameBitsWhenItIsComputedAgain) {
  torch::manual_seed(3);
  const Sample sample = built_in(GetParam());
  if (sample.model->units().size() > 1) expect_same_bits(sample);
}

std::vector<std::string> small_networks() {
  constexpr std::int64_t kMost = 12'000'000;  // parameters
  std::vector<std::string> names;
  for (const auto& row : graph::networks())
    if (graph_of(std::string(row.key)).parameter_count() < kMost) names.emplace_back(row.key);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Recomputing, EveryNetwork, testing::ValuesIn(small_networks()), [](const auto& row) { return row.param; });

TEST(Recomputing, HasTheSameBitsInLowerPrecision) {
  torch::manual_seed(3);
  for (const char* network : {"mlp", "resnet20", "gpt"}) expect_same_bits(built_in(network, tensor::Precision::bf16));
}

TEST(Recomputing, DrawsFromLibTorchsGeneratorAgainForAUsersModule) {
  torch::manual_seed(3);
  expect_same_bits(users_sequence());
}

TEST(Recomputing, CountsABatchOnceInAUsersNorms) {
  torch::manual_seed(3);
  const Sample sample = users_sequence();
  RecomputingModel model(sample.model, Recompute::all);
  whole_pass(model, sample.batch, {});
  auto& module = dynamic_cast<ModuleModel&>(*sample.model).module();
  EXPECT_EQ(module.named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), 1);
}

TEST(Recomputing, PutsGradientsOfWeightsOff) {
  torch::manual_seed(3);
  std::vector<Sample> samples = {built_in("mlp"), built_in("resnet20"), built_in("gpt"), users_sequence()};
  for (const Sample& sample : samples)
    expect_same_bits(sample, [](Model& model, const at::Tensor& batch, const Pass& pass) {
      Trace trace;
      const at::Tensor output = model.run(batch, pass, &trace);
      model.back(model.all(), {probe_for(output)}, pass, trace, {.weights = false}, [](std::size_t, std::size_t) { FAIL(); });
      model.weight_gradients(model.all(), pass, trace, nullptr);
      return output;
    });
}

TEST(Recomputing, GoesOverAnyRanges) {
  torch::manual_seed(3);
  std::vector<Sample> samples = {built_in("mlp"), built_in("resnet20"), built_in("gpt"), users_sequence()};
  for (const Sample& sample : samples) {
    const std::size_t units = sample.model->units().size();
    for (std::size_t cut = 1; cut < units; ++cut) {
      expect_same_bits(sample, [&](Model& model, const at::Tensor& batch, const Pass& pass) {
        Trace trace;
        const Tensors middle = model.run({0, cut}, {batch}, pass, &trace);
        const at::Tensor output = model.run({cut, units}, middle, pass, &trace).at(0);
        const Tensors back = model.back({cut, units}, {probe_for(output)}, pass, trace, {.inputs = true}, nullptr);
        model.back({0, cut}, back, pass, trace, {}, nullptr);
        return output;
      });
      expect_same_bits(sample, [&](Model& model, const at::Tensor& batch, const Pass& pass) {  // a cut within a segment
        Trace trace;
        const at::Tensor output = model.run(batch, pass, &trace);
        const Tensors back = model.back({cut, units}, {probe_for(output)}, pass, trace, {.inputs = true}, nullptr);
        model.back({0, cut}, back, pass, trace, {}, nullptr);
        return output;
      });
    }
  }
}

TEST(Recomputing, KeepsLess) {
  torch::manual_seed(3);
  for (const char* network : {"resnet20", "gpt"}) {
    const Sample sample = built_in(network);
    const auto kept = [&](Model& model) {
      Trace trace;
      model.run(sample.batch, {}, &trace);
      return trace.bytes();
    };
    RecomputingModel units(sample.model, Recompute::units), all(sample.model, Recompute::all);
    EXPECT_LT(2 * kept(units), kept(*sample.model)) << network;
    EXPECT_LT(kept(all), kept(units)) << network;
  }
}

TEST(Recomputing, EnclosesTheSecondForwardPassInTheHooksOfTheBackwardPass) {
  torch::manual_seed(3);
  const Sample sample = built_in("mlp");
  RecomputingModel model(sample.model, Recompute::units);
  std::string calls, expected;
  const auto note = [&](const char* what) { return [&calls, what](std::size_t unit) { calls += what + std::to_string(unit) + ' '; }; };
  const UnitHooks hooks{.before_forward = note("f"), .after_forward = note("F"), .before_backward = note("b"), .after_backward = note("B")};
  const std::size_t units = model.units().size();
  for (std::size_t u = 0; u < units; ++u) expected += "f" + std::to_string(u) + " F" + std::to_string(u) + ' ';
  for (std::size_t u = units; u-- > 0;) expected += "b" + std::to_string(u) + " B" + std::to_string(u) + ' ';
  Pass pass;
  pass.hooks = &hooks;
  whole_pass(model, sample.batch, pass);
  EXPECT_EQ(calls, expected);
}

TEST(Recomputing, RefusesToGoBackTwice) {
  for (const Recompute kind : kKinds) {
    const Sample sample = built_in("mlp");
    RecomputingModel model(sample.model, kind);
    Trace trace;
    const at::Tensor output = model.run(sample.batch, {}, &trace);
    model.back(probe_for(output), {}, trace);
    EXPECT_THROW(model.back(probe_for(output), {}, trace), ConfigError);
  }
}

TEST(Recomputing, RefusesAModelOfOneUnit) {
  const std::shared_ptr<Model> model = model_of(torch::nn::Linear(3, 2));
  EXPECT_THAT(message_of<ConfigError>([&] { recomputing(model, Recompute::units); }), testing::HasSubstr("train.recompute"));
  EXPECT_EQ(recomputing(model, Recompute::none), model);
  EXPECT_THROW(parse_recompute("some"), ConfigError);
}

}  // namespace
}  // namespace paceline::nn::recomputing_test
