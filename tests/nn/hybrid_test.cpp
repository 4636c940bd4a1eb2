// Networks whose data-parallel workers share some layers: losses, gradients and weights as those of plain data parallelism and of one
// worker, however many samples each worker has.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/loss.h"

namespace paceline::nn {
namespace {

constexpr int kHybridSteps = 12;

struct HybridCase {
  std::string name, hybrid;
  graph::ModelConfig model;
  double rate = 0.05;
};

graph::ModelConfig hybrid_model(const std::string& network, graph::Shape input, double dropout = 0) {
  graph::ModelConfig config;
  config.network = network, config.input = std::move(input), config.classes = 8, config.dropout = dropout;
  if (network == "mlp") config.hidden = {24, 20, 16};
  else if (network == "gpt") config.layers = 1, config.width = 16, config.heads = 2, config.classes = 12;
  else config.multiplier = 0.125;
  return config;
}

struct HybridResult {
  double loss = 0;  // of the last step, of this worker's samples
  std::vector<at::Tensor> parameters;
  at::Tensor evaluated;
};

at::Tensor batch_of(const graph::Graph& graph, std::int64_t samples, int step) {
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), samples);
  const at::Tensor values = ((at::arange(graph::elements(shape), at::kDouble) + 613.0 * step) * 0.731).sin().reshape(shape);
  return shape.size() == 2 ? ((values + 1) * 0.5 * static_cast<double>(graph.classes())).floor().to(at::kLong) : values * 1.4;
}

/// Plain gradient descent in double precision. Of nine samples workers have different numbers, and of two some have none.
HybridResult train_hybrid(const HybridCase& test, comm::Communicator& comm, bool hybrid) {
  const graph::Graph graph = graph::make_graph(test.model);
  const int workers = comm.size(), rank = comm.rank();
  const graph::TensorSplit split = graph::hybrid_split(graph, hybrid ? test.hybrid : "*", hybrid ? workers : 1, 9);
  GraphModule::Options options{.dtype = at::kDouble, .seed = 3};
  if (hybrid && workers > 1) options.data = &comm, options.hybrid = split;
  GraphModule module(graph, options);
  const SoftmaxLoss loss(0.1);

  HybridResult result;
  Pass pass;
  const auto masks = make_masks(c10::kCPU);
  pass.masks = masks.get();
  for (int step = 0; step < kHybridSteps; ++step) {
    const std::int64_t batch = step % 3 == 1 ? 2 : 9, begin = batch * rank / workers, count = batch * (rank + 1) / workers - begin;
    pass.shares.clear();
    for (int worker = 0; worker < workers; ++worker)
      pass.shares.push_back(
          {batch * (worker + 1) / workers - batch * worker / workers, chance_of(static_cast<std::uint64_t>(step), worker)});
    pass.chance = pass.shares[static_cast<std::size_t>(rank)].chance;
    const std::int64_t each = graph::elements(graph.output()) / graph.output().back();
    const at::Tensor inputs = batch_of(graph, batch, step).narrow(0, begin, count);
    const at::Tensor all_targets = at::remainder(at::arange(batch * each, at::kLong) * 3 + step, graph.classes());
    const at::Tensor targets = all_targets.narrow(0, begin * each, count * each);
    if (count > 0 || module.exchanges_samples()) {
      Trace trace;
      const at::Tensor output = module.run(inputs, pass, &trace);
      EXPECT_EQ(output.size(0), count);
      const Scored scored = loss.score(output, targets, static_cast<double>(workers) / static_cast<double>(batch * each));
      result.loss = scored.sums[0].item<double>();
      module.back(scored.gradient, pass, trace);
    } else {
      module.arena().gradients().zero_();
    }
    std::size_t entry = 0;
    for (const graph::LocalTensor& local : graph::local_tensors(graph, split, rank)) {
      if (!local.whole.trainable) continue;
      at::Tensor gradient = module.arena().gradient(entry);
      if (local.slice) gradient.div_(workers);
      else comm.run(comm::allreduce(gradient, {.op = comm::ReduceOp::mean}));
      module.arena().parameter(entry++).sub_(gradient, test.rate);
    }
  }
  Pass evaluation;
  evaluation.training = false;  // its shares are asked for
  result.evaluated = module.run(batch_of(graph, 3, 99), evaluation, nullptr);
  for (std::size_t i = 0; i < module.arena().entries().size(); ++i) result.parameters.push_back(module.arena().parameter(i));
  return result;
}

std::vector<HybridResult> train_workers(const HybridCase& test, int workers, bool hybrid) {
  auto group = comm::local_group(workers);
  std::vector<HybridResult> results(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back(
        [&, rank] { results[static_cast<std::size_t>(rank)] = train_hybrid(test, *group[static_cast<std::size_t>(rank)], hybrid); });
  for (std::thread& thread : threads) thread.join();
  return results;
}

void expect_close(const at::Tensor& have, const at::Tensor& want, const std::string& what) {
  ASSERT_EQ(have.sizes(), want.sizes()) << what;
  EXPECT_LE((have - want).abs().max().item<double>(), 1e-9 * want.abs().max().item<double>() + 1e-12) << what;
}

class HybridTraining : public testing::TestWithParam<std::tuple<HybridCase, int>> {};

TEST_P(HybridTraining, EqualsDataParallelismAndOneWorker) {
  const auto& [test, workers] = GetParam();
  const graph::Graph graph = graph::make_graph(test.model);
  const graph::TensorSplit split = graph::hybrid_split(graph, test.hybrid, workers, 9);
  ASSERT_TRUE(std::ranges::any_of(split.layers, [](const auto& layer) { return layer.form != graph::Form::whole; }));
  const std::vector<HybridResult> hybrid = train_workers(test, workers, true);
  // Workers draw masks of their own, so one worker is no reference for dropout.
  for (const int others : test.model.dropout > 0 ? std::vector<int>{workers} : std::vector<int>{workers, 1}) {
    const std::vector<HybridResult> plain = train_workers(test, others, false);
    for (int rank = 0; rank < workers; ++rank) {
      const HybridResult &have = hybrid[static_cast<std::size_t>(rank)], &want = plain[static_cast<std::size_t>(rank % others)];
      if (others == workers) {
        EXPECT_NEAR(have.loss, want.loss, 1e-9 * want.loss) << rank;
      }
      expect_close(have.evaluated, want.evaluated, "evaluation");
      std::size_t entry = 0;
      for (const graph::LocalTensor& local : graph::local_tensors(graph, split, rank)) {
        if (!local.whole.trainable) continue;
        at::Tensor whole = want.parameters[entry];
        if (local.slice) whole = whole.narrow(local.slice->dim, local.slice->runs[0].first, local.slice->runs[0].count);
        expect_close(have.parameters[entry++], whole, local.whole.name);
      }
    }
  }
}

// A loop of one's own has nobody to say who has how many samples.
TEST(HybridModule, IsRefusedToAutograd) {
  const HybridCase test{.name = "mlp", .hybrid = "fc*", .model = hybrid_model("mlp", {3, 4, 4})};
  auto group = comm::local_group(2);
  std::vector<std::thread> threads;
  for (auto& comm : group)
    threads.emplace_back([&] {
      const graph::Graph graph = graph::make_graph(test.model);
      GraphModule module(graph, {.data = comm.get(), .hybrid = graph::hybrid_split(graph, test.hybrid, 2, 6)});
      const at::Tensor batch = batch_of(graph, 3, 1).to(at::kFloat);
      try {
        module.forward(batch);
        ADD_FAILURE() << "its backward pass would not know the shares";
      } catch (const ConfigError& problem) {
        EXPECT_NE(std::string(problem.what()).find("mlp"), std::string::npos);
        EXPECT_NE(std::string(problem.what()).find("2 workers"), std::string::npos);
      }
      const at::NoGradGuard no_grad;
      EXPECT_EQ(module.forward(batch).size(0), 3);
    });
  for (std::thread& thread : threads) thread.join();
}

const HybridCase kHybridCases[] = {
    {.name = "mlp", .hybrid = "fc*", .model = hybrid_model("mlp", {3, 4, 4})},
    {.name = "mlp_dropout", .hybrid = "fc*", .model = hybrid_model("mlp", {3, 4, 4}, 0.3)},
    {.name = "mlp_row_alone", .hybrid = "fc2", .model = hybrid_model("mlp", {3, 4, 4})},
    {.name = "mlp_column_alone", .hybrid = "fc1", .model = hybrid_model("mlp", {3, 2, 2})},
    {.name = "mlp_pair", .hybrid = "fc2,fc3", .model = hybrid_model("mlp", {3, 4, 4}, 0.3)},
    {.name = "mlp_auto", .hybrid = "auto", .model = hybrid_model("mlp", {3, 8, 8})},
    {.name = "cnn", .hybrid = "auto", .model = hybrid_model("cnn", {3, 8, 8})},
    {.name = "gpt_column_alone", .hybrid = "transformer.h.0.mlp.c_fc", .model = hybrid_model("gpt", {6})},
    {.name = "gpt", .hybrid = "transformer.h.0.mlp*,lm_head", .model = hybrid_model("gpt", {6}, 0.2)},
};
const HybridCase kHybridConvolutions[] = {
    {.name = "alexnet", .hybrid = "classifier*", .model = hybrid_model("alexnet", {3, 16, 16}, 0.4)},
    {.name = "vgg16", .hybrid = "classifier*", .model = hybrid_model("vgg16", {3, 20, 20}, 0.4), .rate = 0.01},
};

std::string name_of_hybrid(const testing::TestParamInfo<std::tuple<HybridCase, int>>& test) {
  return std::get<0>(test.param).name + "_" + std::to_string(std::get<1>(test.param));
}
INSTANTIATE_TEST_SUITE_P(Networks, HybridTraining, testing::Combine(testing::ValuesIn(kHybridCases), testing::Values(2, 4)),
                         name_of_hybrid);
INSTANTIATE_TEST_SUITE_P(Convolutions, HybridTraining, testing::Combine(testing::ValuesIn(kHybridConvolutions), testing::Values(4)),
                         name_of_hybrid);

}  // namespace
}  // namespace paceline::nn
