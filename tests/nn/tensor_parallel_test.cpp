// Networks whose layers ranks share: losses, gradients and weights as those of one rank that has them all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/split_loss.h"
#include "paceline/nn/tensor_axis.h"

namespace paceline::nn {
namespace {

constexpr int kSteps = 20;

struct Case {
  std::string name;
  graph::ModelConfig model;
  double smoothing = 0;
  bool sequence = false;
  std::int64_t samples = 6;
  double rate = 0.05;
};

graph::ModelConfig model(const std::string& network, graph::Shape input, std::int64_t classes, double dropout = -1) {
  graph::ModelConfig config;
  config.network = network, config.input = std::move(input), config.classes = classes, config.dropout = dropout;
  if (network == "gpt") config.layers = 2, config.width = 32, config.heads = 4;
  if (network == "mlp") config.hidden = {24, 20, 16};
  return config;
}

TEST(TensorAxis, AScatteredPartKeepsNoMoreMemoryThanItHas) {
  auto group = comm::local_group(2);
  std::vector<std::thread> ranks;
  for (auto& comm : group)
    ranks.emplace_back([&comm] {
      const TensorAxis axis(*comm);
      const at::Tensor part = axis.scatter_positions(at::arange(3 * 4 * 5, at::kDouble).view({3, 4, 5}));
      EXPECT_TRUE(at::equal(part, 2 * at::arange(3 * 4 * 5, at::kDouble).view({3, 4, 5}).narrow(1, 2 * axis.rank(), 2)));
      EXPECT_EQ(part.storage().nbytes(), part.nbytes());
    });
  for (std::thread& rank : ranks) rank.join();
}

struct Trained {
  std::vector<std::array<double, 2>> sums;  // by step: losses, right answers
  std::vector<at::Tensor> parameters, statistics;
  std::array<double, 2> evaluated = {};
};

at::Tensor inputs_of(const graph::Graph& graph, std::int64_t samples, int step) {
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), samples);
  const at::Tensor values = ((at::arange(graph::elements(shape), at::kDouble) + 613.0 * step) * 0.731).sin().reshape(shape);
  return shape.size() == 2 ? ((values + 1) * 0.5 * static_cast<double>(graph.classes())).floor().to(at::kLong) : values * 1.4;
}

at::Tensor targets_of(const graph::Graph& graph, std::int64_t samples, int step) {
  const std::int64_t each = graph::elements(graph.output()) / graph.classes();
  const at::Tensor targets = at::remainder(at::arange(samples * each, at::kLong) * 3 + step, graph.classes());
  return each == 1 ? targets : targets.reshape({samples, each});
}

std::array<double, 2> read(const at::Tensor& sums) { return {sums[0].item<double>(), sums[1].item<double>()}; }

/// Plain gradient descent in double precision, in two micro-batches.
Trained train(const Case& test, comm::Communicator* axis) {
  const graph::Graph graph = graph::make_graph(test.model);
  GraphModule module(graph, {.dtype = at::kDouble, .seed = 3, .tensor = axis, .sequence = axis && test.sequence});
  std::unique_ptr<Loss> loss;
  if (module.split().splits_logits(graph)) loss = std::make_unique<SplitSoftmaxLoss>(*axis, graph.classes(), test.smoothing);
  else loss = std::make_unique<SoftmaxLoss>(test.smoothing);

  Trained result;
  Pass pass;
  const auto masks = make_masks(c10::kCPU);
  pass.masks = masks.get();
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor sums;
    for (int part = 0; part < 2; ++part) {
      pass.accumulate = part > 0, pass.chance = static_cast<std::uint64_t>(100 + 2 * step + part);
      Trace trace;
      const at::Tensor targets = targets_of(graph, test.samples, 2 * step + part);
      const at::Tensor output = module.run(inputs_of(graph, test.samples, 2 * step + part), pass, &trace);
      const Scored scored = loss->score(output, targets, 0.5 / static_cast<double>(targets.numel()));
      sums = part > 0 ? sums + scored.sums : scored.sums;
      module.back(scored.gradient, pass, trace);
    }
    result.sums.push_back(read(sums));
    module.arena().parameters().sub_(module.arena().gradients(), test.rate);
  }
  pass.training = false;
  const at::Tensor output = module.run(inputs_of(graph, test.samples, 99), pass, nullptr);
  result.evaluated = read(loss->evaluate(output, targets_of(graph, test.samples, 99)));
  for (std::size_t i = 0; i < module.arena().entries().size(); ++i) result.parameters.push_back(module.arena().parameter(i));
  for (std::size_t i = 0; i < module.statistics().entries().size(); ++i) result.statistics.push_back(module.statistics().parameter(i));
  return result;
}

void expect_near(const at::Tensor& have, const at::Tensor& want, const std::string& what) {
  ASSERT_EQ(have.sizes(), want.sizes()) << what;
  const double size = want.abs().max().item<double>(), difference = (have - want).abs().max().item<double>();
  EXPECT_LE(difference, 1e-9 * size + 1e-12) << what;
}

class TensorParallel : public testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(TensorParallel, EqualsOneRank) {
  const auto& [test, parts] = GetParam();
  const Trained whole = train(test, nullptr);
  auto group = comm::local_group(parts);
  std::vector<Trained> ranks(static_cast<std::size_t>(parts));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < parts; ++rank)
    threads.emplace_back([&, rank] { ranks[static_cast<std::size_t>(rank)] = train(test, group[static_cast<std::size_t>(rank)].get()); });
  for (std::thread& thread : threads) thread.join();

  const graph::Graph graph = graph::make_graph(test.model);
  const graph::TensorSplit split = graph::tensor_split(graph, parts, test.sequence);
  for (int rank = 0; rank < parts; ++rank) {
    const Trained& part = ranks[static_cast<std::size_t>(rank)];
    for (std::size_t step = 0; step < whole.sums.size(); ++step) {
      EXPECT_NEAR(part.sums[step][0], whole.sums[step][0], 1e-9 * whole.sums[step][0]) << "step " << step;
      EXPECT_EQ(part.sums[step], ranks[0].sums[step]) << "the same bits on all ranks";
      EXPECT_EQ(part.sums[step][1], whole.sums[step][1]) << "right answers of step " << step;
    }
    EXPECT_NEAR(part.evaluated[0], whole.evaluated[0], 1e-9 * whole.evaluated[0]);
    EXPECT_EQ(part.evaluated[1], whole.evaluated[1]);

    std::size_t parameter = 0, statistic = 0;
    for (const graph::LocalTensor& local : graph::local_tensors(graph, split, rank)) {
      const std::size_t index = local.whole.trainable ? parameter++ : statistic++;
      at::Tensor want = (local.whole.trainable ? whole.parameters : whole.statistics).at(index);
      const at::Tensor& have = (local.whole.trainable ? part.parameters : part.statistics).at(index);
      if (local.slice) {
        std::vector<at::Tensor> runs;
        for (const auto& run : local.slice->runs) runs.push_back(want.narrow(local.slice->dim, run.first, run.count));
        want = at::cat(runs, local.slice->dim);
      } else {
        const auto& first = local.whole.trainable ? ranks[0].parameters : ranks[0].statistics;
        EXPECT_TRUE(at::equal(have, first.at(index))) << local.whole.name << " is the same on all ranks";
      }
      expect_near(have, want, local.whole.name);
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<Case, int>>& test) {
  return std::get<0>(test.param).name + "_" + std::to_string(std::get<1>(test.param));
}

graph::ModelConfig with_experts(graph::ModelConfig config) {
  config.experts = 4, config.experts_top = 2;
  return config;
}

const Case kCases[] = {
    {.name = "mlp", .model = model("mlp", {3, 4, 4}, 10, 0.3), .smoothing = 0.1},
    {.name = "mlp_with_many_classes", .model = model("mlp", {3, 4, 4}, 45)},
    {.name = "gpt", .model = model("gpt", {8}, 65, 0.2), .smoothing = 0.1},
    {.name = "gpt_without_dropout", .model = model("gpt", {8}, 9)},
    {.name = "gpt_sequence", .model = model("gpt", {8}, 65, 0.2), .sequence = true},
    {.name = "gpt_experts", .model = with_experts(model("gpt", {8}, 65, 0.2))},
    {.name = "gpt_experts_sequence", .model = with_experts(model("gpt", {8}, 65, 0.2)), .sequence = true},
};
INSTANTIATE_TEST_SUITE_P(Networks, TensorParallel, testing::Combine(testing::ValuesIn(kCases), testing::Values(2, 4)), name_of);

const Case kConvolutions[] = {
    {.name = "cnn", .model = model("cnn", {3, 8, 8}, 10), .smoothing = 0.1},
    {.name = "lenet5", .model = model("lenet5", {1, 28, 28}, 10), .samples = 2},
    {.name = "resnet20", .model = model("resnet20", {3, 8, 8}, 10), .samples = 3},
};
INSTANTIATE_TEST_SUITE_P(Convolutions, TensorParallel, testing::Combine(testing::ValuesIn(kConvolutions), testing::Values(2)), name_of);

}  // namespace
}  // namespace paceline::nn
