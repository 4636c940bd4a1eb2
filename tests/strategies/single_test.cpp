// One worker's step against LibTorch's own autograd and optimizers on the same perceptron.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/step/strategy.h"
#include "paceline/strategies/registry.h"

namespace paceline::strategies {
namespace {

constexpr std::int64_t kFeatures = 12, kHidden = 7, kClasses = 4, kSamples = 10;
constexpr double kRate = 0.1;

graph::Graph small_graph(double dropout = -1) {
  graph::ModelConfig config;
  config.network = "mlp";
  config.input = {1, 3, 4};
  config.hidden = {kHidden};
  config.classes = kClasses;
  config.dropout = dropout;
  return graph::make_graph(config);
}

step::Batch batch_of(std::int64_t step) {
  const at::Tensor values = at::arange(kSamples * kFeatures, at::kFloat) + static_cast<double>(1000 * step);
  const at::Tensor targets = at::remainder(at::arange(kSamples, at::kLong) * 3 + step, kClasses);
  return {(values * 0.77).sin().reshape({kSamples, 1, 3, 4}) * 2, targets};
}

/// A strategy with what it needs around it.
struct Worker {
  explicit Worker(const optim::OptimConfig& config, std::int64_t micro_batches = 1, double label_smoothing = 0, double dropout = -1)
      : module(small_graph(dropout), options()), optim(config) {
    strategy = make_strategy({{.name = "single"}}, {.model = module,
                                                    .optim = optim,
                                                    .mesh = mesh,
                                                    .bus = bus,
                                                    .clock = clock,
                                                    .compress = compress,
                                                    .seed = 5,
                                                    .loss = std::make_shared<nn::SoftmaxLoss>(label_smoothing),
                                                    .micro_batches = micro_batches});
  }

  static nn::GraphModule::Options options() {
    nn::GraphModule::Options made;
    made.seed = 3;
    return made;
  }
  step::StepResult step(std::int64_t number) { return strategy->step(batch_of(number), {.step = number, .rate = kRate}); }

  nn::GraphModule module;
  optim::OptimConfig optim;
  std::unique_ptr<comm::Communicator> comm = std::move(comm::local_group(1).front());
  comm::Mesh mesh{*comm};
  compress::CompressConfig compress;
  observe::Bus bus;
  SteadyClock clock;
  std::unique_ptr<step::Strategy> strategy;
};

/// The same perceptron as LibTorch's users write it.
struct Reference {
  explicit Reference(nn::GraphModule& module) {
    for (std::size_t i = 0; i < module.arena().entries().size(); ++i)
      parameters.push_back(module.arena().parameter(i).detach().clone().requires_grad_(true));
  }

  at::Tensor loss(const step::Batch& batch, double smoothing = 0) const {
    namespace F = torch::nn::functional;
    const at::Tensor hidden = at::relu(at::linear(batch.inputs.flatten(1), parameters[0], parameters[1]));
    const at::Tensor logits = at::linear(hidden, parameters[2], parameters[3]);
    return F::cross_entropy(logits, batch.targets, F::CrossEntropyFuncOptions().label_smoothing(smoothing));
  }

  template <class Optimizer>
  double step(Optimizer& optimizer, const step::Batch& batch, double smoothing = 0, double clip_norm = 0) {
    optimizer.zero_grad();
    const at::Tensor value = loss(batch, smoothing);
    value.backward();
    if (clip_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, clip_norm);
    optimizer.step();
    return value.template item<double>();
  }

  std::vector<torch::Tensor> weights() const { return {parameters[0], parameters[2]}; }
  std::vector<torch::Tensor> biases() const { return {parameters[1], parameters[3]}; }

  std::vector<torch::Tensor> parameters;  // weight and bias of fc1, of fc2
};

void expect_equal(Worker& worker, const Reference& reference, double tolerance = 1e-6) {
  for (std::size_t i = 0; i < reference.parameters.size(); ++i) {
    const double distance = (worker.module.arena().parameter(i) - reference.parameters[i]).abs().max().item<double>();
    EXPECT_LT(distance, tolerance) << worker.module.arena().entries()[i].name;
  }
}

/// Three steps of both, their losses and their parameters.
template <class Optimizer>
void expect_same_training(const optim::OptimConfig& config, const std::function<Optimizer(const Reference&)>& make, double smoothing = 0) {
  Worker worker(config, 1, smoothing);
  Reference reference(worker.module);
  Optimizer optimizer = make(reference);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const step::StepResult result = worker.step(step);
    const double expected = reference.step(optimizer, batch_of(step), smoothing, config.clip_norm);
    EXPECT_EQ(result.targets, kSamples);
    EXPECT_NEAR(result.sums[0].item<double>() / static_cast<double>(result.targets), expected, 1e-6) << "loss of step " << step;
    expect_equal(worker, reference);
  }
}

optim::OptimConfig config_of(const std::string& name) {
  optim::OptimConfig config;
  config.name = name;
  config.momentum = 0;
  return config;
}

TEST(Single, PlainSgd) {
  expect_same_training<torch::optim::SGD>(
      config_of("sgd"), [](const Reference& r) { return torch::optim::SGD(r.parameters, torch::optim::SGDOptions(kRate)); });
}

TEST(Single, SgdWithMomentumAndDecayOfEverything) {
  for (bool nesterov : {false, true}) {
    optim::OptimConfig config = config_of("sgd");
    config.momentum = 0.9;
    config.nesterov = nesterov;
    config.weight_decay = 0.05;
    config.decay_norms = true;
    expect_same_training<torch::optim::SGD>(config, [&](const Reference& r) {
      return torch::optim::SGD(r.parameters, torch::optim::SGDOptions(kRate).momentum(0.9).nesterov(nesterov).weight_decay(0.05));
    });
  }
}

TEST(Single, BiasesDoNotDecayUnlessAsked) {
  optim::OptimConfig config = config_of("sgd");
  config.momentum = 0.9;
  config.weight_decay = 0.05;
  expect_same_training<torch::optim::SGD>(config, [](const Reference& r) {
    const auto options = [](double decay) {
      return std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(kRate).momentum(0.9).weight_decay(decay));
    };
    const std::vector<torch::optim::OptimizerParamGroup> groups = {{r.weights(), options(0.05)}, {r.biases(), options(0)}};
    return torch::optim::SGD(groups, torch::optim::SGDOptions(kRate));
  });
}

TEST(Single, Adam) {
  optim::OptimConfig config = config_of("adam");
  config.weight_decay = 0.05;
  config.decay_norms = true;
  expect_same_training<torch::optim::Adam>(
      config, [](const Reference& r) { return torch::optim::Adam(r.parameters, torch::optim::AdamOptions(kRate).weight_decay(0.05)); });
}

TEST(Single, AdamW) {
  optim::OptimConfig config = config_of("adamw");
  config.weight_decay = 0.05;
  config.decay_norms = true;
  config.beta1 = 0.8, config.beta2 = 0.95;
  expect_same_training<torch::optim::AdamW>(config, [](const Reference& r) {
    return torch::optim::AdamW(r.parameters, torch::optim::AdamWOptions(kRate).betas({0.8, 0.95}).weight_decay(0.05));
  });
}

TEST(Single, ClippingByTheGlobalNorm) {
  for (double limit : {0.05, 100.0}) {  // far below and far above the norm of this gradient
    optim::OptimConfig config = config_of("sgd");
    config.momentum = 0.9;
    config.clip_norm = limit;
    expect_same_training<torch::optim::SGD>(
        config, [](const Reference& r) { return torch::optim::SGD(r.parameters, torch::optim::SGDOptions(kRate).momentum(0.9)); });
  }
}

TEST(Single, ClippingBoundsTheStep) {
  optim::OptimConfig config = config_of("sgd");
  config.clip_norm = 0.05;
  Worker worker(config);
  const at::Tensor before = worker.module.arena().parameters().clone();
  worker.step(1);
  EXPECT_NEAR((worker.module.arena().parameters() - before).norm().item<double>(), kRate * 0.05, 1e-6);
}

TEST(Single, LabelSmoothing) {
  expect_same_training<torch::optim::SGD>(
      config_of("sgd"), [](const Reference& r) { return torch::optim::SGD(r.parameters, torch::optim::SGDOptions(kRate)); }, 0.2);
}

TEST(Single, CountsTheRightAnswers) {
  Worker worker(config_of("sgd"));
  nn::Pass pass;
  pass.training = false;
  const step::Batch batch = batch_of(1);
  const auto expected = worker.module.run(batch.inputs, pass, nullptr).argmax(1).eq(batch.targets).sum().item<std::int64_t>();
  EXPECT_EQ(worker.step(1).sums[1].item<double>(), static_cast<double>(expected));
}

TEST(Single, MicroBatchesOfAnyNumberGiveTheGradientOfTheWhole) {
  Worker whole(config_of("sgd"));
  whole.step(1);
  for (std::int64_t parts : {2, 3, 5, 10, 64}) {
    Worker worker(config_of("sgd"), parts);
    EXPECT_EQ(worker.step(1).targets, kSamples);
    EXPECT_LT((worker.module.arena().gradients() - whole.module.arena().gradients()).abs().max().item<double>(), 1e-6) << parts;
  }
}

TEST(Single, ASavedStateGoesOnBitForBit) {
  optim::OptimConfig config = config_of("adam");
  Worker one(config), two(config);
  one.step(1), one.step(2);
  at::Tensor(two.module.arena().parameters()).copy_(one.module.arena().parameters());
  std::vector<step::NamedTensor> state;
  for (const step::NamedTensor& item : one.strategy->save()) state.push_back({item.name, item.tensor.clone()});
  one.step(3);  // what was saved is not disturbed by what comes after
  two.strategy->load(state);
  two.step(3);
  EXPECT_TRUE(at::equal(one.module.arena().parameters(), two.module.arena().parameters()));
}

TEST(Single, TheStateIsNamedByParameterAndHasItsShape) {
  optim::OptimConfig config = config_of("sgd");
  config.momentum = 0.9;
  Worker worker(config);
  std::vector<std::string> names;
  for (const step::NamedTensor& item : worker.strategy->save()) {
    names.push_back(item.name);
    EXPECT_TRUE(item.tensor.eq(0).all().item<bool>());
  }
  EXPECT_THAT(names, testing::ElementsAre("optim.momentum.fc1.weight", "optim.momentum.fc1.bias", "optim.momentum.fc2.weight",
                                          "optim.momentum.fc2.bias"));
  EXPECT_EQ(worker.strategy->save()[0].tensor.sizes(), (at::IntArrayRef{kHidden, kFeatures}));
}

TEST(Single, DropoutIsDrawnByTheNumberOfTheStep) {
  const auto gradients_after = [](std::int64_t number) {
    Worker worker(config_of("sgd"), 1, 0, 0.5);
    worker.strategy->step(batch_of(1), {.step = number, .rate = 0});
    return worker.module.arena().gradients().clone();
  };
  EXPECT_TRUE(at::equal(gradients_after(4), gradients_after(4)));
  EXPECT_FALSE(at::equal(gradients_after(4), gradients_after(5)));
}

TEST(Registry, NamesTheNearestStrategy) {
  try {
    paired("singel", {});
    FAIL() << "no error";
  } catch (const ConfigError& problem) {
    EXPECT_THAT(problem.what(), testing::HasSubstr("did you mean 'single'"));
  }
}

TEST(Registry, MakesNoStrategyBeforeAutoIsResolved) {
  EXPECT_THROW(paired("auto", {}), ConfigError);
  EXPECT_EQ(resolve("auto", 1), "single");
  EXPECT_EQ(resolve("auto", 2), "allreduce");
  EXPECT_EQ(resolve("gossip", 2), "gossip");
}

}  // namespace
}  // namespace paceline::strategies
