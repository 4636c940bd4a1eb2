// How passes are made: several in flight, evaluation, running statistics, chance, lower precision, graphs that cannot be trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "cases.h"
#include "paceline/base/error.h"
#include "paceline/graph/builder.h"
#include "paceline/nn/graph_module.h"

namespace paceline::nn {
namespace {

using graph::Builder;
using testing::HasSubstr;

graph::Graph convolutions(double dropout = 0) {
  Builder net("tiny", {2, 6, 6}, 3);
  net.conv("conv1", 4, {.kernel = 3, .padding = 1}).bn("bn1").relu();
  const int stem = net.top();
  net.conv("conv2", 4, {.kernel = 3, .padding = 1}).bn("bn2").add(stem).relu().max_pool({.kernel = 2}).flatten();
  if (dropout > 0) net.dropout(dropout);
  return net.fc("fc", 3).finish();
}

at::Tensor batch_of(std::int64_t samples, std::uint64_t seed) {
  torch::manual_seed(seed);
  return at::randn({samples, 2, 6, 6});
}

at::Tensor gradients_of(GraphModule& module, const at::Tensor& batch, const at::Tensor& probe, const Pass& pass = {}) {
  Trace trace;
  module.run(batch, pass, &trace);
  module.back(probe, pass, trace);
  return module.arena().gradients().clone();
}

TEST(Passes, TwoAreInFlightWithTwoTraces) {
  GraphModule module(convolutions(), {});
  const at::Tensor first = batch_of(4, 1), second = batch_of(3, 2), first_probe = at::randn({4, 3}), second_probe = at::randn({3, 3});
  const at::Tensor first_alone = gradients_of(module, first, first_probe), second_alone = gradients_of(module, second, second_probe);

  Trace first_trace, second_trace;
  module.run(first, {}, &first_trace);
  module.run(second, {}, &second_trace);
  module.back(first_probe, {}, first_trace);
  EXPECT_TRUE(at::equal(module.arena().gradients(), first_alone));
  module.back(second_probe, {}, second_trace);
  EXPECT_TRUE(at::equal(module.arena().gradients(), second_alone));
}

TEST(Passes, MicroBatchesAddUp) {
  Builder net("tiny", {5}, 3);  // no batch norm: it would see the parts
  GraphModule module(net.fc("fc1", 7).tanh().fc("fc2", 3).finish(), {});
  torch::manual_seed(3);
  const at::Tensor batch = at::randn({6, 5}), probe = at::randn({6, 3});
  const at::Tensor whole = gradients_of(module, batch, probe);
  gradients_of(module, batch.narrow(0, 0, 2), probe.narrow(0, 0, 2));
  Pass add;
  add.accumulate = true;
  gradients_of(module, batch.narrow(0, 2, 4), probe.narrow(0, 2, 4), add);
  EXPECT_TRUE(at::allclose(module.arena().gradients(), whole, 1e-5, 1e-6));
}

TEST(Passes, ATraceServesOneBackwardPass) {
  GraphModule module(convolutions(), {});
  Trace trace;
  EXPECT_THROW(module.back(at::ones({2, 3}), {}, trace), ConfigError) << "no forward pass was made";
  module.run(batch_of(2, 1), {}, &trace);
  module.back(at::ones({2, 3}), {}, trace);
  EXPECT_THROW(module.back(at::ones({2, 3}), {}, trace), ConfigError);
  module.run(batch_of(2, 1), {}, &trace);
  EXPECT_NO_THROW(module.back(at::ones({2, 3}), {}, trace)) << "and may then be filled again";
}

TEST(Passes, ABranchFromTheInputNeedsNoGradientOfIt) {
  Builder net("tiny", {4}, 4);
  GraphModule module(net.fc("fc", 4).add(0).finish(), {});  // the sum reads the sample itself
  torch::manual_seed(4);
  const at::Tensor x = at::randn({3, 4}), probe = at::randn({3, 4});
  gradients_of(module, x, probe);
  EXPECT_TRUE(at::allclose(module.arena().gradient(0), probe.t().mm(x), 1e-5, 1e-6));

  Trace trace;
  module.run(x, {}, &trace);
  const at::Tensor input = module.back(probe, {}, trace, nullptr, /*wants_input=*/true);
  EXPECT_TRUE(at::allclose(input, probe + probe.mm(module.arena().parameter(0)), 1e-5, 1e-6));
}

TEST(Training, ABatchNormOfOneValueAChannelIsRefused) {
  Builder net("tiny", {2, 2, 2}, 3);
  net.conv("conv", 4, {.kernel = 2}).bn("narrow").relu().flatten();
  GraphModule module(net.fc("fc", 3).finish(), {});
  const at::Tensor before = module.statistics().parameters().clone();
  const auto train = [&](std::int64_t samples, int workers) -> std::string {
    Pass pass;
    if (workers > 1) pass.sum_over_workers = [&](at::Tensor& sums) { sums *= workers; };  // all have the same samples
    try {
      module.run(at::ones({samples, 2, 2, 2}), pass, nullptr);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "trained";
  };
  EXPECT_THAT(train(1, 1), testing::AllOf(HasSubstr("'narrow'"), HasSubstr("data.batch"), HasSubstr("data.drop_last=true")));
  EXPECT_TRUE(at::equal(module.statistics().parameters(), before));
  EXPECT_EQ(train(2, 1), "trained");
  EXPECT_EQ(train(1, 2), "trained") << "together they have two";
  EXPECT_TRUE(at::isfinite(module.statistics().parameters()).all().item<bool>());
  Pass alone;
  alone.sum_over_workers = [](at::Tensor&) {};  // the others have none
  EXPECT_THROW(module.run(at::ones({1, 2, 2, 2}), alone, nullptr), ConfigError);
  Pass evaluation;
  evaluation.training = false;
  EXPECT_NO_THROW(module.run(at::ones({1, 2, 2, 2}), evaluation, nullptr));
}

TEST(Evaluation, UsesTheRunningStatistics) {
  GraphModule module(convolutions(), {});
  const Pass training;
  Pass evaluation;
  evaluation.training = false;
  const at::Tensor batch = batch_of(5, 6);
  for (int step = 0; step < 3; ++step) module.run(batch_of(5, 7), training, nullptr);

  const at::Tensor statistics = module.statistics().parameters().clone();
  const at::Tensor together = module.run(batch, evaluation, nullptr);
  EXPECT_TRUE(at::equal(module.statistics().parameters(), statistics)) << "and leaves them alone";
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_TRUE(at::allclose(module.run(batch.narrow(0, i, 1), evaluation, nullptr), together.narrow(0, i, 1), 1e-5, 1e-5))
        << "a sample's logits do not depend on its neighbours";
  EXPECT_FALSE(at::allclose(module.run(batch, training, nullptr), together, 1e-3, 1e-3));
}

TEST(Evaluation, RunningStatisticsFollowLibTorchsBatchNorm) {
  Builder net("tiny", {3, 4, 4}, 3);
  GraphModule module(net.bn("bn").global_pool().flatten().finish(), {});
  torch::nn::BatchNorm2d reference(3);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor batch = 2 + 3 * at::randn({4, 3, 4, 4});
    module.run(batch, {}, nullptr);
    reference(batch);
  }
  EXPECT_TRUE(at::allclose(module.statistics().parameter(0), reference->running_mean));
  EXPECT_TRUE(at::allclose(module.statistics().parameter(1), reference->running_var));
  EXPECT_GT(module.statistics().parameter(0).min().item<float>(), 0.1);
  Pass evaluation;
  evaluation.training = false;
  reference->eval();
  const at::Tensor batch = at::randn({2, 3, 4, 4});
  EXPECT_TRUE(at::allclose(module.run(batch, evaluation, nullptr), reference(batch).mean({2, 3}), 1e-5, 1e-6));
}

TEST(Chance, ComesFromThePass) {
  GraphModule module(convolutions(0.5), {});
  EXPECT_TRUE(module.uses_chance());
  EXPECT_FALSE(GraphModule(convolutions(), {}).uses_chance());
  const at::Tensor batch = batch_of(4, 8);
  const auto logits = [&](std::uint64_t seed) {
    Pass pass;
    const auto masks = make_masks(c10::kCPU);
    pass.masks = masks.get(), pass.chance = seed;
    return module.run(batch, pass, nullptr);
  };
  const at::Tensor first = logits(1);
  torch::manual_seed(99);  // the global generator plays no part
  EXPECT_TRUE(at::equal(first, logits(1)));
  EXPECT_FALSE(at::equal(first, logits(2)));

  Pass evaluation;
  evaluation.training = false;
  EXPECT_TRUE(at::equal(module.run(batch, evaluation, nullptr), module.run(batch, evaluation, nullptr)));
}

TEST(Chance, DropsTheShareItIsTold) {
  Builder net("tiny", {20000}, 20000);
  GraphModule module(net.dropout(0.3).finish(), {});
  torch::manual_seed(9);
  const at::Tensor out = module.run(at::ones({5, 20000}), {}, nullptr);
  EXPECT_NEAR(out.eq(0).to(at::kFloat).mean().item<double>(), 0.3, 0.01);
  EXPECT_NEAR(out.max().item<double>(), 1 / 0.7, 1e-6);
  EXPECT_NEAR(out.mean().item<double>(), 1, 0.02) << "what is kept is scaled up";
}

TEST(LowerPrecision, FollowsSinglePrecision) {
  const auto smooth = [] {  // where a value near a kink falls on its other side, gradients would differ by more than rounding
    Builder net("tiny", {2, 6, 6}, 3);
    net.conv("conv", 4, {.kernel = 3, .padding = 1, .bias = false}).bn("bn").tanh().avg_pool({.kernel = 2}).flatten();
    return net.fc("fc1", 8).layer_norm("norm").gelu().fc("fc2", 3).finish();
  };
  GraphModule::Options options;
  options.precision = tensor::Precision::bf16;
  GraphModule half(smooth(), options), single(smooth(), {});
  EXPECT_EQ(half.arena().parameters().scalar_type(), at::kFloat) << "the parameters stay whole";
  EXPECT_EQ(half.statistics().parameters().scalar_type(), at::kFloat);
  const at::Tensor batch = batch_of(8, 10), probe = at::randn({8, 3}).to(at::kBFloat16);
  EXPECT_EQ(half.run(batch, {}, nullptr).scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(half.run(batch, {}, nullptr).to(at::kFloat), single.run(batch, {}, nullptr), 0.02, 0.02));
  gradients_of(half, batch, probe);
  gradients_of(single, batch, probe.to(at::kFloat));
  for (std::size_t i = 0; i < single.arena().entries().size(); ++i) {
    const at::Tensor actual = half.arena().gradient(i), expected = single.arena().gradient(i);
    EXPECT_LT((actual - expected).norm().item<double>(), 0.03 * expected.norm().item<double>()) << single.arena().entries()[i].name;
  }
}

TEST(LowerPrecision, EveryKindOfLayerMakesAStepInIt) {
  for (const Case& row : cases()) {
    GraphModule::Options options;
    options.precision = tensor::Precision::bf16;
    GraphModule module(graph_of(row), options);
    Pass pass;
    pass.training = row.training;
    at::Tensor sample = sample_of(row);
    if (sample.is_floating_point()) sample = sample.to(at::kFloat);
    Trace trace;
    const at::Tensor out = module.run(sample, pass, &trace);
    EXPECT_EQ(out.scalar_type(), at::kBFloat16) << row.name;
    const at::Tensor back = module.back(at::ones_like(out), pass, trace, nullptr, /*wants_input=*/sample.is_floating_point());
    EXPECT_TRUE(!back.defined() || at::isfinite(back).all().item<bool>()) << row.name;
    EXPECT_TRUE(at::isfinite(module.arena().gradients()).all().item<bool>()) << row.name;
  }
}

TEST(LowerPrecision, SeesNewParametersAfterRefresh) {
  GraphModule::Options options;
  options.precision = tensor::Precision::bf16;
  GraphModule module(convolutions(), options);
  const at::Tensor batch = batch_of(4, 11), before = module.run(batch, {}, nullptr);
  module.arena().parameters().mul_(2);
  module.refresh();
  EXPECT_FALSE(at::allclose(module.run(batch, {}, nullptr), before));
}

TEST(Graphs, WithALayerThatNothingReadsAreRefused) {
  const auto refusal = [](const graph::Graph& graph) -> std::string {
    try {
      const GraphModule module(graph, {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  Builder branch("tiny", {4}, 4);
  branch.fc("kept", 4);
  const int kept = branch.top();
  branch.fc("forgotten", 4).from(kept).relu();
  EXPECT_THAT(refusal(branch.finish()), HasSubstr("'forgotten'"));

  Builder tail("tiny", {4}, 4);
  tail.fc("kept", 4).fc("beyond", 4).from(1);  // the logits come before the last layer
  EXPECT_THAT(refusal(tail.finish()), HasSubstr("'beyond'"));
}

}  // namespace
}  // namespace paceline::nn
