// Pipelines train as one worker with the same micro-batches does, whatever the schedule, the number of stages and the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/sharded/gathering_model.h"
#include "ranks.h"

namespace paceline::pipeline {
namespace {

constexpr double kAdamsRate = 1e-3;

void expect_close(const std::map<std::string, at::Tensor>& made, const std::map<std::string, at::Tensor>& wanted) {
  ASSERT_EQ(made.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(made.contains(name)) << name;
    const double scale = std::max(tensor.abs().max().item<double>(), 1e-3);
    at::Tensor differences = (made.at(name) - tensor).abs();
    if (name.ends_with("c_attn.bias")) {
      // The gradient of the keys' bias is zero but for rounding, which Adam divides by its own size.
      at::Tensor keys = differences.chunk(3)[1];
      EXPECT_LE(keys.max().item<double>(), kAdamsRate / 100) << name;
      keys.zero_();
    }
    EXPECT_LE(differences.max().item<double>(), 1e-5 * scale) << name;
  }
}

void expect_same(const Trained& made, const Trained& wanted) {
  ASSERT_EQ(made.losses.size(), wanted.losses.size());
  for (std::size_t step = 0; step < wanted.losses.size(); ++step)
    EXPECT_NEAR(made.losses[step], wanted.losses[step], 1e-5 * std::abs(wanted.losses[step])) << "step " << step + 1;
  expect_close(made.parameters, wanted.parameters);
  expect_close(made.statistics, wanted.statistics);
  EXPECT_NEAR(made.evaluated, wanted.evaluated, 1e-5 * std::abs(wanted.evaluated));
}

void expect_equal_to_one_worker(const std::string& name, const Trial& settings) {
  const Trained wanted = train(settings);
  for (const auto& row : schedule::pipelines())
    for (const int stages : {2, 4}) {
      SCOPED_TRACE(testing::Message() << name << ", " << row.key << ", " << stages << " stages");
      Trial trial = settings;
      trial.schedule = row.key, trial.mesh.pipeline = stages;
      expect_same(train(trial), wanted);
    }
}

class Pipelined : public testing::TestWithParam<std::string> {};

TEST_P(Pipelined, TrainsAsOneWorkerDoes) { expect_equal_to_one_worker(GetParam(), {.graph = network(GetParam())}); }

TEST_P(Pipelined, DropoutDrawsTheSameMasks) {
  expect_equal_to_one_worker(GetParam(), {.graph = network(GetParam(), 0.3), .steps = 5, .optimizer = "adamw", .rate = kAdamsRate});
}

TEST_P(Pipelined, MicroBatchesMayDifferInSize) {
  expect_equal_to_one_worker(GetParam(), {.graph = network(GetParam()), .micro_batches = 3, .batch = 10, .steps = 4});
}

TEST_P(Pipelined, TwoWorkersShareTheBatch) {
  expect_equal_to_one_worker(GetParam(), {.graph = network(GetParam()), .mesh = {.data = 2}, .steps = 6});
}

INSTANTIATE_TEST_SUITE_P(Networks, Pipelined, testing::Values("mlp", "cnn", "residual", "gpt", "gpt_tied"),
                         [](const auto& item) { return item.param; });

// LARS takes the norms of whole tensors: a tied one has one norm, of the sum of both stages' gradients.
TEST(PipelinedTied, HasOneNorm) {
  expect_equal_to_one_worker("gpt_tied", {.graph = network("gpt_tied"), .micro_batches = 2, .steps = 6, .optimizer = "lars"});
}

// A tied gradient is added up in another order than on one worker. At this rate, differences of one unit in the last place stay so small;
// at one of 0.05, where Adam's updates are as large as the weights, any of them grows to the size of the weights within 20 steps.
TEST(PipelinedTied, TrainsAsOneWorkerDoesUnderAdam) {
  for (const char* optimizer : {"adam", "adamw"})
    expect_equal_to_one_worker("gpt_tied", {.graph = network("gpt_tied"), .optimizer = optimizer, .rate = kAdamsRate});
}

// What an evaluation sends is no traffic of training.
TEST(PipelinedTied, CountsWhatTrainingSends) {
  const Trial trial{.graph = network("gpt_tied"), .mesh = {.data = 1, .pipeline = 2}};
  const auto problems = with_ranks(trial, [](Rank& rank) {
    const auto pass = make_pass(rank.context());
    pass->begin_step(1);
    const auto& tied = rank.module().tied();
    ASSERT_TRUE(tied);
    for (int step = 1; step <= 3; ++step) {
      pass->run(rank.batch(step), 1);
      const step::Traffic before = pass->traffic();
      pass->evaluate(rank.batch(0));
      EXPECT_EQ(pass->traffic().bytes_sent, before.bytes_sent);
      EXPECT_EQ(pass->traffic().bytes_pipeline, before.bytes_pipeline);
      EXPECT_EQ(pass->traffic().exposed_s, before.exposed_s);
    }
    // Of width 16 and 6 positions in fp32: four micro-batches of 2 samples, the table, and what is announced once.
    const std::int64_t header = 128 * 8, step = 4 * (2 * 6 * 16) * 4 + static_cast<std::int64_t>(tied->values.nbytes());
    EXPECT_EQ(pass->traffic().bytes_pipeline, 3 * step + header);
  });
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
}

TEST(PipelinedShare, WithoutSamplesHasZerosInMemoryThatIsCounted) {
  const auto problems = with_ranks({.graph = network("mlp"), .mesh = {.data = 2, .pipeline = 2}}, [](Rank& rank) {
    const std::shared_ptr<nn::Model> module(&rank.module(), [](nn::Model*) {});
    const step::Context& given = rank.context();
    sharded::GatheringModel model(module, rank.mesh().data(), given.clock, /*stage=*/2);
    const step::Context context{.model = model,
                                .optim = given.optim,
                                .mesh = given.mesh,
                                .bus = given.bus,
                                .clock = given.clock,
                                .compress = given.compress,
                                .micro_batches = 2,
                                .pipeline = given.pipeline};
    const auto pass = make_pass(context);
    pass->hand_over([] {});
    step::Batch batch = rank.batch(1);
    batch = {batch.inputs.narrow(0, 0, 0), batch.targets.narrow(0, 0, 0), 1};
    tensor::Arena& arena = model.arena();
    const std::int64_t before = arena.ledger().bytes(tensor::Role::gradient);
    std::vector<bool> told(arena.entries().size(), false);
    pass->run(batch, 1, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) told[i] = true;
    });
    const auto page = static_cast<std::int64_t>(tensor::page_bytes());
    EXPECT_GE(arena.ledger().bytes(tensor::Role::gradient) + 2 * page, static_cast<std::int64_t>(arena.gradients().nbytes()));
    EXPECT_GE(arena.ledger().bytes(tensor::Role::gradient), before);
    EXPECT_EQ(arena.gradients().abs().max().item<float>(), 0);
    EXPECT_EQ(std::ranges::count(told, false), 0);
  });
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
}

TEST(SlowPipelined, Resnet18TrainsAsOneWorkerDoes) { expect_equal_to_one_worker("resnet18", {.graph = network("resnet18")}); }

TEST(PipelinedBatch, MayBeOneMicroBatch) { expect_equal_to_one_worker("mlp", {.graph = network("mlp"), .micro_batches = 1, .steps = 3}); }

TEST(PipelinedBatch, WithoutSamplesGivesZeros) {
  const Trial trial{.graph = network("mlp"), .mesh = {.data = 1, .pipeline = 2}, .batch = 0};
  const auto problems = with_ranks(trial, [](Rank& rank) {
    const auto pass = make_pass(rank.context());
    const tensor::Arena& arena = rank.module().arena();
    for (std::size_t i = 0; i < arena.entries().size(); ++i) arena.gradient(i).fill_(1);
    EXPECT_EQ(pass->run(rank.batch(1), 1)[0].item<double>(), 0);
    EXPECT_EQ(rank.module().arena().gradients().abs().sum().item<double>(), 0);
  });
  for (const std::exception_ptr& problem : problems) EXPECT_FALSE(problem);
}

TEST(PipelinedBatch, AnnouncesEveryGradientOnceTheLastUnitsFirst) {
  for (const auto& row : schedule::pipelines()) {
    const Trial trial{.graph = network("gpt"), .mesh = {.data = 1, .pipeline = 2}, .schedule = std::string(row.key)};
    const auto problems = with_ranks(trial, [](Rank& rank) {
      const auto pass = make_pass(rank.context());
      pass->begin_step(1);
      std::vector<std::size_t> entries;
      pass->run(rank.batch(1), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t entry = last; entry-- > first;) entries.push_back(entry);
      });
      EXPECT_EQ(entries.size(), rank.module().arena().entries().size());
      EXPECT_TRUE(std::ranges::is_sorted(entries, std::greater()));
    });
    for (const std::exception_ptr& problem : problems) EXPECT_FALSE(problem) << row.key;
  }
}

}  // namespace
}  // namespace paceline::pipeline
