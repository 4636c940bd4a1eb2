// A user's own module in an arena: the user keeps his tensors and his loop, the arena holds their storage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "paceline/base/error.h"
#include "paceline/tensor/arena.h"

namespace paceline::tensor {
namespace {

using testing::HasSubstr;

torch::nn::Sequential make_module() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)), torch::nn::BatchNorm2d(4),
                               torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(4 * 5 * 5, 3));
}

at::Tensor sample_loss(torch::nn::Sequential& module) {
  torch::manual_seed(4);
  return module->forward(at::randn({2, 2, 5, 5})).square().sum();
}

TEST(Adopt, KeepsValuesNamesAndOrder) {
  torch::nn::Sequential module = make_module(), untouched = make_module();
  const Arena arena = adopt(*module);
  const auto expected = untouched->named_parameters();
  ASSERT_EQ(arena.entries().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(arena.entries()[i].name, expected[i].key());
    EXPECT_EQ(arena.entries()[i].decay, expected[i].value().dim() >= 2) << expected[i].key();
    EXPECT_TRUE(at::equal(arena.parameter(i), expected[i].value())) << expected[i].key();
    EXPECT_TRUE(at::equal(module->named_parameters()[i].value(), expected[i].value())) << expected[i].key();
  }
  EXPECT_EQ(arena.count(), 4 * 2 * 9 + 4 + 4 + 4 + 100 * 3 + 3);
}

TEST(Adopt, ParametersAliasTheArena) {
  torch::nn::Sequential module = make_module();
  const at::Tensor held_before = module->parameters()[0];
  const Arena arena = adopt(*module);
  {
    torch::NoGradGuard no_grad;
    arena.parameters().fill_(0.25);
  }
  for (const at::Tensor& parameter : module->parameters()) {
    EXPECT_TRUE(parameter.is_alias_of(arena.parameters()));
    EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf());
    EXPECT_EQ(parameter.min().item<float>(), 0.25);
  }
  EXPECT_EQ(held_before.max().item<float>(), 0.25) << "a tensor that the user held before is the same tensor still";
}

TEST(Adopt, BackwardAccumulatesIntoTheArena) {
  torch::nn::Sequential module = make_module(), untouched = make_module();
  const Arena arena = adopt(*module);
  sample_loss(module).backward();
  sample_loss(untouched).backward();
  const auto expected = untouched->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::allclose(arena.gradient(i), expected[i].grad())) << i;
  EXPECT_GT(arena.gradients().abs().sum().item<float>(), 0);

  const at::Tensor once = arena.gradients().clone();
  sample_loss(module).backward();
  EXPECT_TRUE(at::allclose(arena.gradients(), 2 * once)) << "as autograd does: adds";
}

TEST(Adopt, GradientsComeBackToTheArenaWhenZeroGradDroppedThem) {
  struct Net : torch::nn::Module {
    Net() : used(register_module("used", make_module())), sometimes(register_module("sometimes", torch::nn::Linear(3, 3))) {}
    at::Tensor loss(int step) {
      const at::Tensor out = used->forward(at::sin(at::arange(100, at::kFloat) + step).reshape({2, 2, 5, 5}));
      return (step % 2 == 0 ? sometimes(out) : out).square().sum();
    }
    torch::nn::Sequential used;
    torch::nn::Linear sometimes;
  } module, plain;
  const Arena arena = adopt(module);
  for (int step = 0; step < 4; ++step) {
    module.zero_grad(/*set_to_none=*/true);
    plain.zero_grad(/*set_to_none=*/true);
    const bool keep_graph = step == 3;  // then autograd adds out of place
    for (int pass = 0; pass < 2; ++pass)
      for (Net* net : {&module, &plain}) net->loss(step).backward({}, keep_graph, keep_graph);
    const auto mine = module.parameters(), expected = plain.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const at::Tensor wanted = expected[i].grad().defined() ? expected[i].grad() : at::zeros_like(expected[i]);
      EXPECT_TRUE(at::equal(arena.gradient(i), wanted)) << step << " " << arena.entries()[i].name;
      EXPECT_EQ(mine[i].grad().data_ptr(), arena.gradient(i).data_ptr()) << step << " " << arena.entries()[i].name;
    }
  }
  for (Net* net : {&module, &plain})
    net->zero_grad(/*set_to_none=*/true);  // a gradient with a graph holds its parameter, and the other way
}

TEST(Adopt, TheLastArenaHasTheGradients) {
  torch::nn::Sequential module = make_module(), untouched = make_module();
  int heard = 0;
  const Arena before = adopt(*module, allocate_pages, [&](std::size_t) { ++heard; });
  const Arena arena = adopt(*module, allocate_pages, [](std::size_t) {});
  sample_loss(module).backward();
  sample_loss(untouched).backward();
  EXPECT_EQ(heard, 0);
  EXPECT_EQ(before.gradients().abs().sum().item<float>(), 0);
  const auto mine = module->parameters(), expected = untouched->parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(at::equal(arena.gradient(i), expected[i].grad())) << i;
    EXPECT_EQ(mine[i].grad().data_ptr(), arena.gradient(i).data_ptr()) << i;
  }
}

TEST(Adopt, WhoHasLostTheModuleIsTold) {
  torch::nn::Sequential module = make_module();
  const Arena wrapped = adopt(*module, allocate_pages, [](std::size_t) { ADD_FAILURE() << "it is told of gradients that it has not"; });
  const Arena arena = adopt(*module);
  EXPECT_THROW(wrapped.take_back(), ConfigError);
  EXPECT_NO_THROW(arena.take_back());
  EXPECT_THROW(sample_loss(module).backward(), ConfigError);
}

TEST(Adopt, AParameterThatWasMovedIsNoticedInTheNextPass) {
  torch::nn::Linear module(2, 3);
  const Arena arena = adopt(*module);
  module->to(torch::kDouble);
  EXPECT_THROW(module(torch::ones({1, 2}, torch::kDouble)).sum().backward(), ConfigError);
}

TEST(Adopt, AParameterThatIsFrozenLaterHasNoGradient) {
  torch::nn::Linear module(2, 3);
  const Arena arena = adopt(*module);
  module(torch::ones({1, 2})).sum().backward();
  module->bias.set_requires_grad(false);
  module->zero_grad(/*set_to_none=*/true);
  module(torch::ones({1, 2})).sum().backward();
  arena.take_back();
  EXPECT_FALSE(module->bias.grad().defined());
  EXPECT_EQ(arena.gradient(1).abs().sum().item<float>(), 0);
  EXPECT_EQ(arena.gradient(0).sum().item<float>(), 6);
}

TEST(Adopt, TakesSparseGradientsIn) {
  torch::nn::Embedding module(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  const Arena arena = adopt(*module);
  module->zero_grad(/*set_to_none=*/true);
  module->forward(at::tensor({3, 1, 3}, at::kLong)).sum().backward();
  EXPECT_TRUE(at::equal(arena.gradient(0).sum(1), at::tensor({0.f, 2.f, 0.f, 4.f, 0.f})));
}

TEST(Adopt, AModuleOutlivesItsArena) {
  torch::nn::Sequential module = make_module(), untouched = make_module();
  const at::Tensor loss = [&] {
    const Arena arena = adopt(*module);
    return sample_loss(module);
  }();
  module->zero_grad(/*set_to_none=*/true);
  loss.backward();
  sample_loss(untouched).backward();
  const auto mine = module->parameters(), expected = untouched->parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(at::equal(mine[i].grad(), expected[i].grad())) << i;
}

TEST(Adopt, AnOptimizerOfTheUserMovesTheArena) {
  torch::nn::Sequential module = make_module();
  const Arena arena = adopt(*module);
  torch::optim::SGD optimizer(module->parameters(), 0.1);
  for (at::Tensor& parameter : optimizer.param_groups()[0].params()) parameter.mutable_grad().zero_();
  const at::Tensor before = arena.parameters().clone();
  sample_loss(module).backward();
  optimizer.step();
  EXPECT_TRUE(at::allclose(arena.parameters(), before - 0.1 * arena.gradients()));
}

TEST(Adopt, LeavesFrozenParametersWhereTheyAre) {
  torch::nn::Sequential module = make_module();
  const at::Tensor frozen = module->parameters()[0];
  frozen.set_requires_grad(false);
  const void* storage = frozen.data_ptr();
  const Arena arena = adopt(*module);
  EXPECT_EQ(arena.entries().size(), module->parameters().size() - 1);
  EXPECT_EQ(arena.entries()[0].name, "0.bias");
  EXPECT_EQ(frozen.data_ptr(), storage);
  sample_loss(module).backward();
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(Adopt, GivesASharedParameterOnePlace) {
  struct Tied : torch::nn::Module {
    Tied() : weight(register_parameter("weight", at::randn({3, 3}))), again(register_parameter("again", weight)) {}
    at::Tensor forward(const at::Tensor& x) { return x.mm(weight).tanh().mm(again).sum(); }
    at::Tensor weight, again;
  } module;
  const Arena arena = adopt(module);
  ASSERT_EQ(arena.entries().size(), 1u);
  EXPECT_EQ(arena.count(), 9);
  EXPECT_TRUE(module.weight.is_alias_of(arena.parameters()));
  EXPECT_EQ(module.weight.data_ptr(), module.again.data_ptr());

  const at::Tensor x = at::ones({1, 3});
  const at::Tensor copy = module.weight.detach().clone().requires_grad_();
  x.mm(copy).tanh().mm(copy).sum().backward();
  module.forward(x).backward();
  EXPECT_TRUE(at::allclose(arena.gradient(0), copy.grad()));
}

TEST(Adopt, TakesItsMemoryFromTheAllocatorItIsGiven) {
  torch::nn::Linear module(3, 2);
  int asked = 0;
  const Arena arena = adopt(*module, [&](std::int64_t elements, const at::TensorOptions& options) {
    ++asked;
    return allocate_pages(elements, options);
  });
  EXPECT_EQ(asked, 2);
}

TEST(Adopt, KeepsTheModulesPrecision) {
  torch::nn::Sequential module = make_module();
  module->to(torch::kDouble);
  EXPECT_EQ(adopt(*module).parameters().scalar_type(), at::kDouble);
}

TEST(Adopt, RefusesMixedPrecision) {
  torch::nn::Sequential module = make_module();
  module[4]->to(torch::kDouble);
  const at::Tensor first = module->parameters()[0];
  const void* storage = first.data_ptr();
  try {
    adopt(*module);
    FAIL() << "a module of two precisions was adopted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("'4.weight'"), HasSubstr("'0.weight'"), HasSubstr("module->to")));
  }
  EXPECT_EQ(first.data_ptr(), storage) << "nothing was moved";
}

TEST(Adopt, RefusesAModuleWithNothingToTrain) {
  torch::nn::ReLU nothing;
  EXPECT_THROW(adopt(*nothing), ConfigError);
  torch::nn::Linear frozen(2, 2);
  for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  EXPECT_THROW(adopt(*frozen), ConfigError);
}

}  // namespace
}  // namespace paceline::tensor
