// The module in a user's own loop: forward() under autograd, LibTorch's optimizers, and a residual block beside the same block written by
// hand.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <sstream>

#include "paceline/base/error.h"
#include "paceline/graph/builder.h"
#include "paceline/nn/graph_module.h"

namespace paceline::nn {
namespace {

namespace F = torch::nn::functional;
using graph::Builder;

graph::Graph perceptron() {
  Builder net("tiny", {5}, 3);
  return net.fc("fc1", 16).tanh().fc("fc2", 3).finish();
}

struct ResidualBlock : torch::nn::Module {
  ResidualBlock()
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1).bias(false)))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(4))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1).bias(false)))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(4))),
        shortcut(register_module("shortcut", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 1).bias(false)))),
        fc(register_module("fc", torch::nn::Linear(4, 2))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor computed = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return fc(torch::relu(shortcut(x) + computed).mean({2, 3}));
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Conv2d shortcut;
  torch::nn::Linear fc;
};

graph::Graph residual_block() {
  Builder net("tiny", {3, 5, 5}, 2);
  const graph::Conv conv3x3{.kernel = 3, .padding = 1, .bias = false};
  const int computed = net.conv("conv1", 4, conv3x3).bn("bn1").relu().conv("conv2", 4, conv3x3).bn("bn2").top();
  net.from(0).conv("shortcut", 4, {.bias = false}).add(computed).relu();
  return net.global_pool().flatten().fc("fc", 2).finish();
}

TEST(Autograd, AResidualBlockEqualsTheOneWrittenByHand) {
  GraphModule module(residual_block(), {});
  ResidualBlock by_hand;
  torch::optim::SGD ours(module.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD theirs(by_hand.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  {
    torch::NoGradGuard no_grad;
    for (const auto& item : module.named_parameters()) by_hand.named_parameters()[item.key()].copy_(item.value());
  }
  torch::manual_seed(41);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = at::randn({6, 3, 5, 5}), targets = at::randint(2, {6}, at::kLong);
    const at::Tensor x_ours = x.clone().requires_grad_(), x_theirs = x.clone().requires_grad_();
    ours.zero_grad();
    theirs.zero_grad();
    const at::Tensor our_loss = F::cross_entropy(module.forward(x_ours), targets),
                     their_loss = F::cross_entropy(by_hand.forward(x_theirs), targets);
    our_loss.backward();
    their_loss.backward();
    EXPECT_NEAR(our_loss.item<double>(), their_loss.item<double>(), 1e-5) << step;
    EXPECT_TRUE(at::allclose(x_ours.grad(), x_theirs.grad(), 1e-4, 1e-6)) << step;
    for (const auto& item : module.named_parameters())
      EXPECT_TRUE(at::allclose(item.value().grad(), by_hand.named_parameters()[item.key()].grad(), 1e-4, 1e-5))
          << item.key() << " in step " << step;
    ours.step();
    theirs.step();
  }
  for (const auto& item : module.named_buffers())
    EXPECT_TRUE(at::allclose(item.value(), by_hand.named_buffers()[item.key()], 1e-4, 1e-5)) << item.key();
}

TEST(Autograd, ComputesAndTrainsWithWhatLibTorchLoaded) {
  const auto saved = std::make_shared<GraphModule>(residual_block(), GraphModule::Options{.seed = 1});
  const auto module = std::make_shared<GraphModule>(residual_block(), GraphModule::Options{.seed = 2});
  const at::Tensor x = at::linspace(-1, 1, 2 * 3 * 5 * 5).reshape({2, 3, 5, 5});
  saved->forward(x);  // its running statistics are its own now
  std::stringstream stream;
  torch::save(saved, stream);
  torch::load(module, stream);
  saved->eval(), module->eval();
  EXPECT_TRUE(at::equal(module->forward(x), saved->forward(x)));

  const at::Tensor before = module->arena().parameters().clone();
  torch::optim::SGD optimizer(module->parameters(), 0.1);
  module->forward(x).square().sum().backward();
  optimizer.step();
  EXPECT_FALSE(at::equal(module->arena().parameters(), before));

  module->to(torch::kDouble);
  EXPECT_THROW(module->forward(x), ConfigError);
}

TEST(Autograd, FrozenParametersHaveNoGradientAndTheOthersDo) {
  GraphModule module(residual_block(), {});
  const at::Tensor x = at::linspace(-1, 1, 2 * 3 * 5 * 5).reshape({2, 3, 5, 5});
  auto parameters = module.named_parameters();
  for (const std::string name : {"conv1.weight", "conv2.weight"}) {  // the first of all, and one in the middle
    module.zero_grad(/*set_to_none=*/true);
    parameters[name].set_requires_grad(false);
    module.forward(x).square().sum().backward();
    EXPECT_FALSE(parameters[name].grad().defined()) << name;
    EXPECT_GT(parameters["fc.weight"].grad().abs().sum().item<float>(), 0) << name;
  }
  for (at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(module.forward(x).requires_grad());
  const at::Tensor input = x.clone().requires_grad_();
  module.forward(input).square().sum().backward();
  EXPECT_GT(input.grad().abs().sum().item<float>(), 0);
  EXPECT_EQ(module.arena().gradients().abs().sum().item<float>(), 0);
}

TEST(Autograd, AnOptimizerMovesTheCopiesInLowerPrecisionToo) {
  GraphModule module(perceptron(), {.precision = tensor::Precision::bf16});
  torch::optim::SGD optimizer(module.parameters(), 0.5);
  const at::Tensor x = at::linspace(-1, 1, 20).reshape({4, 5});
  const auto loss = [&] { return module.forward(x).to(at::kFloat).square().sum(); };
  const at::Tensor first = loss();
  first.backward();
  optimizer.step();
  EXPECT_NE(loss().item<float>(), first.item<float>());
}

TEST(Autograd, AUsersLoopLearns) {
  GraphModule module(perceptron(), {});
  torch::optim::SGD optimizer(module.parameters(), 0.5);
  torch::manual_seed(42);
  const at::Tensor x = at::randn({32, 5}), targets = x.narrow(1, 0, 3).argmax(1);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = F::cross_entropy(module.forward(x), targets);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, 0.3 * first);
}

TEST(Autograd, GradientsAddUntilTheyAreZeroed) {
  GraphModule module(perceptron(), {});
  const at::Tensor x = at::ones({2, 5});
  module.forward(x).sum().backward();
  const at::Tensor once = module.arena().gradients().clone();
  module.forward(x).sum().backward();
  EXPECT_TRUE(at::allclose(module.arena().gradients(), 2 * once));
  for (const bool drop : {false, true}) {  // newer LibTorch drops the gradients' tensors by default
    module.zero_grad(drop);
    module.forward(x).sum().backward();
    EXPECT_TRUE(at::equal(module.arena().gradients(), once)) << drop;
    for (const at::Tensor& parameter : module.parameters()) EXPECT_TRUE(parameter.grad().is_alias_of(module.arena().gradients())) << drop;
  }
}

TEST(Autograd, GivesTheInputsGradientInEvaluationToo) {
  Builder net("tiny", {4, 3, 3}, 4);
  GraphModule module(net.bn("bn").global_pool().flatten().finish(), {});
  module.eval();
  const at::Tensor x = at::randn({2, 4, 3, 3}).requires_grad_();
  module.forward(x).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), at::full_like(x, 1 / std::sqrt(1 + 1e-5) / 9)));
}

TEST(Autograd, BuildsNoGraphWhereNoneIsWanted) {
  GraphModule module(perceptron(), {});
  const at::Tensor x = at::ones({2, 5});
  EXPECT_TRUE(module.forward(x).requires_grad());
  torch::NoGradGuard no_grad;
  EXPECT_FALSE(module.forward(x).requires_grad());
}

TEST(Autograd, WorksWithoutParameters) {
  Builder net("tiny", {4}, 4);
  GraphModule module(net.tanh().finish(), {});
  const at::Tensor x = at::randn({2, 4}).requires_grad_();
  module.forward(x).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), 1 - x.tanh().square()));
  EXPECT_FALSE(module.forward(x.detach()).requires_grad());
}

TEST(Autograd, RefusesASecondBackwardThroughOneForward) {
  GraphModule module(perceptron(), {});
  const at::Tensor loss = module.forward(at::ones({2, 5})).sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), ConfigError);
}

TEST(Autograd, TwoForwardsMayWaitForTheirBackwards) {
  GraphModule module(perceptron(), {});
  torch::manual_seed(43);
  const at::Tensor a = at::randn({2, 5}), b = at::randn({3, 5});
  module.forward(a).square().sum().backward();
  module.forward(b).square().sum().backward();
  const at::Tensor apart = module.arena().gradients().clone();
  module.arena().gradients().zero_();
  (module.forward(a).square().sum() + module.forward(b).square().sum()).backward();
  EXPECT_TRUE(at::allclose(module.arena().gradients(), apart, 1e-5, 1e-6));
}

}  // namespace
}  // namespace paceline::nn
