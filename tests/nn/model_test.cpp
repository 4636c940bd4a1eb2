// Passes over ranges of units: the same bits as the whole pass, several micro-batches in flight, gradients of weights put off, hooks. The
// same is asked of built-in networks and of modules of a user's.
#include "paceline/nn/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/utils.h>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/module_model.h"
#include "paceline/nn/recomputing_model.h"

namespace paceline::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A model with a batch for it.
struct Sample {
  std::string name;
  std::shared_ptr<Model> model;
  at::Tensor batch;
};

Sample built_in(const std::string& network) {
  graph::ModelConfig config;
  config.network = network, config.classes = 10, config.input = {3, 32, 32};
  if (network == "mlp") config.input = {1, 6, 6}, config.hidden = {12, 9};
  if (network == "gpt") config.input = {8}, config.layers = 2, config.width = 16;
  const graph::Graph graph = graph::make_graph(config);
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), 4);
  return {network, std::make_shared<GraphModule>(graph, GraphModule::Options{}),
          shape.size() == 2 ? at::randint(10, shape, at::kLong) : at::randn(shape)};
}

torch::nn::Sequential users_sequence() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(3, 8, 3).padding(1).bias(false)), BatchNorm2d(8), ReLU(ReLUOptions(true)),
                    Conv2d(Conv2dOptions(8, 4, 3).stride(2)), Tanh(), Flatten(), Linear(4 * 7 * 7, 10));
}

struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(11, 6));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(6, 5).batch_first(true)));
    head = register_module("head", torch::nn::Linear(5, 11));
  }
  at::Tensor forward(const at::Tensor& tokens) { return head(std::get<0>(lstm(embedding(tokens)))); }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Recurrent);

std::vector<ModuleModel::Block> blocks_of(Recurrent net) {
  return {{"embedding", [net](const at::Tensor& x) mutable { return net->embedding(x); }},
          {"lstm", [net](const at::Tensor& x) mutable { return std::get<0>(net->lstm(x)); }},
          {"head", [net](const at::Tensor& x) mutable { return net->head(x); }}};
}

std::vector<Sample> samples() {
  torch::manual_seed(3);
  const Recurrent listed;
  std::vector<Sample> all = {built_in("mlp"), built_in("resnet20"), built_in("gpt")};
  all.push_back({"sequence", std::make_shared<ModuleModel>(users_sequence()), at::randn({4, 3, 16, 16})});
  all.push_back({"one unit", model_of(Recurrent()), at::randint(11, {4, 7}, at::kLong)});
  all.push_back({"listed blocks", std::make_shared<ModuleModel>(listed.ptr(), blocks_of(listed)), at::randint(11, {4, 7}, at::kLong)});
  return all;
}

/// Everything that a pass leaves: output, gradients, statistics.
struct Left {
  at::Tensor output, gradients, statistics;
};

void expect_same(const Left& left, const Left& right, const std::string& what) {
  EXPECT_TRUE(at::equal(left.output, right.output)) << what;
  EXPECT_TRUE(at::equal(left.gradients, right.gradients)) << what;
  EXPECT_TRUE(at::equal(left.statistics, right.statistics)) << what;
}

/// Runs `pass` on a model whose statistics and gradients are as they were in the beginning.
template <class Body>
Left leave(const Sample& sample, const Body& body) {
  Model& model = *sample.model;
  const at::Tensor statistics = model.statistics().parameters().clone();
  model.arena().gradients().fill_(7);
  for (std::size_t i = 0; i < model.arena().entries().size(); ++i) model.arena().gradient(i).fill_(std::nan(""));
  Left left;
  left.output = body(model);
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < model.arena().entries().size(); ++i) gradients.push_back(model.arena().gradient(i).flatten().clone());
  left.gradients = at::cat(gradients);
  left.statistics = model.statistics().parameters().clone();
  at::Tensor(model.statistics().parameters()).copy_(statistics);
  return left;
}

at::Tensor probe_for(const at::Tensor& output) { return output.detach().cos(); }

Left whole_pass(const Sample& sample) {
  return leave(sample, [&](Model& model) {
    Trace trace;
    const at::Tensor output = model.run(sample.batch, {}, &trace);
    model.back(probe_for(output), {}, trace);
    return output;
  });
}

TEST(Model, HasUnitsThatOwnAllEntriesInOrder) {
  for (const Sample& sample : samples()) {
    std::size_t entry = 0;
    for (const Unit& unit : sample.model->units()) {
      if (unit.first_entry == unit.last_entry) continue;  // a child without parameters
      EXPECT_EQ(unit.first_entry, entry) << sample.name << ' ' << unit.name;
      entry = unit.last_entry;
    }
    EXPECT_EQ(entry, sample.model->arena().entries().size()) << sample.name;
  }
}

TEST(Model, IsAsGoodInPartsAsInOne) {
  for (const Sample& sample : samples()) {
    const Left whole = whole_pass(sample);
    const std::size_t units = sample.model->units().size();
    for (std::size_t cut = 1; cut < units; ++cut) {
      const Left parts = leave(sample, [&](Model& model) {
        Trace trace;
        const Tensors middle = model.run({0, cut}, {sample.batch}, {}, &trace);
        const at::Tensor output = model.run({cut, units}, middle, {}, &trace).at(0);
        const Tensors back = model.back({cut, units}, {probe_for(output)}, {}, trace, {.inputs = true}, nullptr);
        EXPECT_EQ(back.at(0).sizes(), middle.at(0).sizes());
        model.back({0, cut}, back, {}, trace, {}, nullptr);
        return output;
      });
      expect_same(parts, whole, sample.name + " cut at " + std::to_string(cut));
    }
  }
}

TEST(Model, MakesGradientsOfWeightsLater) {
  for (const Sample& sample : samples()) {
    const Left whole = whole_pass(sample);
    const Left later = leave(sample, [&](Model& model) {
      Trace trace;
      const at::Tensor output = model.run(sample.batch, {}, &trace);
      model.back(model.all(), {probe_for(output)}, {}, trace, {.weights = false}, [](std::size_t, std::size_t) { FAIL(); });
      std::size_t complete_from = model.arena().entries().size();
      model.weight_gradients(model.all(), {}, trace, [&](std::size_t first, std::size_t last) {
        EXPECT_EQ(last, complete_from);
        complete_from = first;
      });
      EXPECT_EQ(complete_from, 0u) << sample.name;
      return output;
    });
    expect_same(later, whole, sample.name);
  }
}

TEST(Model, HasSeveralMicroBatchesInFlight) {
  for (const Sample& sample : samples()) {
    const std::size_t units = sample.model->units().size(), cut = units / 2;
    const at::Tensor halves[] = {sample.batch.narrow(0, 0, 2), sample.batch.narrow(0, 2, 2)};
    Pass adding;
    adding.accumulate = true;
    const Left in_turn = leave(sample, [&](Model& model) {
      at::Tensor output;
      for (const int half : {1, 0}) {
        Trace trace;
        output = model.run(halves[half], {}, &trace);
        model.back(probe_for(output), half == 1 ? Pass() : adding, trace);
      }
      return output;
    });
    const Left at_once = leave(sample, [&](Model& model) {
      Trace traces[2];
      Tensors middles[2], outputs[2];
      for (const int half : {1, 0}) middles[half] = model.run({0, cut}, {halves[half]}, {}, &traces[half]);
      for (const int half : {1, 0}) outputs[half] = model.run({cut, units}, middles[half], {}, &traces[half]);
      for (const int half : {1, 0}) {
        const Tensors back =
            model.back({cut, units}, {probe_for(outputs[half][0])}, half == 1 ? Pass() : adding, traces[half], {.inputs = true}, nullptr);
        model.back({0, cut}, back, half == 1 ? Pass() : adding, traces[half], {}, nullptr);
      }
      return outputs[0][0];
    });
    expect_same(at_once, in_turn, sample.name);
  }
}

TEST(Model, CallsHooksAroundEveryUnit) {
  for (const Sample& sample : samples()) {
    const std::size_t units = sample.model->units().size();
    std::vector<std::string> calls, expected;
    const auto note = [&](const char* what) { return [&calls, what](std::size_t unit) { calls.push_back(what + std::to_string(unit)); }; };
    const UnitHooks hooks{
        .before_forward = note("f"), .after_forward = note("F"), .before_backward = note("b"), .after_backward = note("B")};
    for (std::size_t u = 0; u < units; ++u) expected.push_back("f" + std::to_string(u)), expected.push_back("F" + std::to_string(u));
    for (std::size_t u = units; u-- > 0;) expected.push_back("b" + std::to_string(u)), expected.push_back("B" + std::to_string(u));
    Pass pass;
    pass.hooks = &hooks;
    Trace trace;
    const at::Tensor output = sample.model->run(sample.batch, pass, &trace);
    sample.model->back(probe_for(output), pass, trace);
    EXPECT_EQ(calls, expected) << sample.name;
  }
}

TEST(Model, RefusesToGoBackTwiceOrWhereItNeverWent) {
  for (const Sample& sample : samples()) {
    Trace trace;
    const at::Tensor output = sample.model->run(sample.batch, {}, &trace);
    sample.model->back(probe_for(output), {}, trace);
    EXPECT_THROW(sample.model->back(probe_for(output), {}, trace), ConfigError) << sample.name;
    Trace untouched;
    EXPECT_THROW(sample.model->back(probe_for(output), {}, untouched), ConfigError) << sample.name;
  }
}

// ---- modules of a user's

/// Gradients of a plain loop of LibTorch's.
std::vector<at::Tensor> autograd_gradients(torch::nn::Module& module, const at::Tensor& output) {
  module.zero_grad();
  (output * probe_for(output)).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : module.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

TEST(ModuleModel, AgreesWithAPlainLoop) {
  torch::manual_seed(4);
  torch::nn::Sequential net = users_sequence(), twin = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  const at::Tensor batch = at::randn({4, 3, 16, 16});
  const at::Tensor expected = twin->forward(batch);
  const std::vector<at::Tensor> gradients = autograd_gradients(*twin, expected);
  ModuleModel model(net);
  EXPECT_EQ(model.units().size(), 6u) << "the ReLU works in place and belongs to the norm before it";
  Trace trace;
  const at::Tensor output = model.run(batch, {}, &trace);
  EXPECT_TRUE(at::equal(output, expected));
  model.back(probe_for(output), {}, trace);
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(model.arena().gradient(i), gradients[i])) << i;
  ASSERT_EQ(model.statistics().entries().size(), 2u);
  EXPECT_TRUE(at::equal(model.statistics().parameter(0), twin->named_buffers()["1.running_mean"]));
  EXPECT_EQ(model.statistics_momentum(0), 0.1);
}

TEST(ModuleModel, EvaluatesWithoutKeepingAnything) {
  ModuleModel model(users_sequence());
  const at::Tensor batch = at::randn({2, 3, 16, 16});
  Pass pass;
  pass.training = false;
  const at::Tensor before = model.statistics().parameters().clone(), output = model.run(batch, pass, nullptr);
  EXPECT_FALSE(output.requires_grad());
  EXPECT_FALSE(model.module().is_training());
  EXPECT_TRUE(at::equal(model.statistics().parameters(), before));
}

TEST(ModuleModel, CountsAWeightThatAPassDoesNotUseAsZero) {
  struct Partly : torch::nn::Module {
    Partly() : used(register_module("used", torch::nn::Linear(3, 2))), idle(register_module("idle", torch::nn::Linear(3, 2))) {}
    at::Tensor forward(const at::Tensor& x) { return used(x); }
    torch::nn::Linear used, idle;
  };
  const auto model = model_of(std::make_shared<Partly>());
  model->arena().gradients().fill_(5);
  Trace trace;
  model->back(model->run(at::ones({2, 3}), {}, &trace), {}, trace);
  EXPECT_EQ(model->arena().gradient(2).abs().sum().item<float>(), 0);
  EXPECT_NE(model->arena().gradient(0).abs().sum().item<float>(), 0);
}

TEST(ModuleModel, RefusesBlocksThatLeaveParametersOut) {
  const Recurrent net;
  std::vector<ModuleModel::Block> blocks = blocks_of(net);
  std::swap(blocks[0], blocks[1]);
  try {
    ModuleModel model(net.ptr(), blocks);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lstm.weight_ih_l0"));
  }
  blocks = blocks_of(net);
  blocks.pop_back();
  EXPECT_THROW(ModuleModel(net.ptr(), blocks), ConfigError);
}

Pass with_input_gradients() {
  Pass pass;
  pass.input_gradients = true;
  return pass;
}

TEST(Model, HandsOutTheGradientOfItsInput) {
  const Pass pass = with_input_gradients();
  for (const Sample& sample : samples()) {
    if (!sample.batch.is_floating_point()) continue;
    const Left whole = whole_pass(sample);
    at::Tensor gradient;
    expect_same(leave(sample,
                      [&](Model& model) {
                        Trace trace;
                        const at::Tensor output = model.run(sample.batch, pass, &trace);
                        gradient = model.back(probe_for(output), pass, trace, nullptr, /*wants_input=*/true);
                        return output;
                      }),
                whole, sample.name);
    EXPECT_FALSE(sample.batch.requires_grad()) << "the caller's tensor stays as it is";
    // What the probed output changes by, when the input moves along its gradient.
    const double step = 1e-2 / gradient.norm().item<double>();
    const auto probed = [&](double by) {
      const at::Tensor moved = leave(sample, [&](Model& model) { return model.run(sample.batch + by * gradient, {}, nullptr); }).output;
      return (moved * probe_for(whole.output)).sum(at::kDouble).item<double>();
    };
    EXPECT_NEAR((probed(step) - probed(-step)) / (2 * step) / gradient.square().sum(at::kDouble).item<double>(), 1, 0.03) << sample.name;
  }
}

TEST(ModuleModel, GivesItsInputTheGradientOfAPlainLoop) {
  torch::manual_seed(4);
  const torch::nn::Sequential net = users_sequence(), twin = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  const at::Tensor batch = at::randn({4, 3, 16, 16}), leaf = batch.clone().requires_grad_();
  torch::nn::Sequential loop = twin;
  const at::Tensor expected = loop->forward(leaf);
  (expected * probe_for(expected)).sum().backward();
  const auto module = std::make_shared<ModuleModel>(net);
  const Pass pass = with_input_gradients();
  const auto given_by = [&](Model& model) {
    Trace trace;
    return model.back(probe_for(model.run(batch, pass, &trace)), pass, trace, nullptr, /*wants_input=*/true);
  };
  EXPECT_TRUE(at::allclose(given_by(*module), leaf.grad(), 1e-5, 1e-6));
  Trace unasked;
  module->run(batch, {}, &unasked);
  EXPECT_THROW(module->back(probe_for(expected), pass, unasked, nullptr, /*wants_input=*/true), ConfigError);
  for (const Recompute what : {Recompute::units, Recompute::all}) {
    RecomputingModel recomputing(module, what);
    EXPECT_TRUE(at::allclose(given_by(recomputing), leaf.grad(), 1e-5, 1e-6));
  }
}

}  // namespace
}  // namespace paceline::nn
