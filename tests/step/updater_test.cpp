// Paceline's optimizers on a user's own module, in the user's own loop.
#include "paceline/step/updater.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <sstream>

#include "paceline/base/error.h"

namespace paceline::step {
namespace {

using testing::HasSubstr;

torch::Tensor loss_of(torch::nn::Linear& module, int step) {
  return module(torch::sin(torch::arange(12, torch::kFloat) + step).reshape({4, 3})).square().mean();
}

TEST(Updater, FollowsAPlainLoopThatDropsItsGradients) {
  torch::manual_seed(5);
  torch::nn::Linear mine(3, 2), plain(3, 2);
  {
    const torch::NoGradGuard no_grad;
    mine->weight.copy_(plain->weight), mine->bias.copy_(plain->bias);
  }
  tensor::Arena arena = tensor::adopt(*mine);
  Updater updater(arena, {.name = "sgd", .rate = 0.1, .momentum = 0});
  torch::optim::SGD optimizer(plain->parameters(), 0.1);
  for (int step = 1; step <= 5; ++step) {
    mine->zero_grad(/*set_to_none=*/true);
    plain->zero_grad(/*set_to_none=*/true);
    loss_of(mine, step).backward();
    loss_of(plain, step).backward();
    updater.begin_step({.rate = 0.1f, .step = step});
    updater.update_all();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(mine->weight, plain->weight, 1e-6, 1e-7)) << step;
    EXPECT_TRUE(torch::allclose(mine->bias, plain->bias, 1e-6, 1e-7)) << step;
  }
}

TEST(Updater, TrainsWhatWasLoadedIntoItsModule) {
  torch::nn::Linear module(3, 2), saved(3, 2);
  tensor::Arena arena = tensor::adopt(*module);
  Updater updater(arena, {.name = "sgd", .rate = 0.1, .momentum = 0});
  std::stringstream stream;
  torch::save(saved, stream);
  torch::load(module, stream);
  EXPECT_TRUE(torch::equal(module->weight, saved->weight));
  loss_of(module, 1).backward();
  updater.begin_step({.rate = 0.1f, .step = 1});
  updater.update_all();
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(module->weight, saved->weight - 0.1 * module->weight.grad(), 1e-6, 1e-7));
  EXPECT_GT((module->weight - saved->weight).abs().sum().item<float>(), 0);
}

TEST(Updater, RefusesAModuleThatWasMovedSinceItWasAdopted) {
  torch::nn::Linear module(3, 2);
  tensor::Arena arena = tensor::adopt(*module);
  Updater updater(arena, {});
  module->to(torch::kDouble);
  try {
    updater.begin_step({.rate = 0.1f, .step = 1});
    FAIL() << "parameters that are elsewhere would have been updated";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("'weight'"), HasSubstr("Float"), HasSubstr("Double")));
  }
}

TEST(Updater, RefusesParametersOfAnotherPrecision) {
  torch::nn::Linear module(3, 2);
  module->to(torch::kDouble);
  tensor::Arena arena = tensor::adopt(*module);
  try {
    const Updater updater(arena, {});
    FAIL() << "parameters in double were taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("Double"), HasSubstr("module->to(torch::kFloat)")));
  }
}

}  // namespace
}  // namespace paceline::step
