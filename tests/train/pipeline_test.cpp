// Whole runs through a pipeline: the same losses as one worker with the same micro-batches, and what is refused before they start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/graph/tensor_split.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/train/memory_plan.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Recipe deep_recipe() {
  Recipe recipe = tiny_recipe();
  recipe.model.hidden = {16, 12, 16};
  recipe.model.dropout = 0.2;
  recipe.train.micro_batches = 4;
  recipe.train.checkpoints = false;
  recipe.data.drop_last = false, recipe.data.train_samples -= 9;  // the last batch has 7
  return recipe;
}

observe::RunEnded ended_of(const Recipe& recipe) {
  const Folder folder;
  return run_in(folder.path(), recipe);
}

TEST(PipelinedRun, HasTheLossesOfOneWorker) {
  const observe::RunEnded alone = ended_of(deep_recipe());
  for (const auto& row : schedule::pipelines()) {
    Recipe recipe = deep_recipe();
    recipe.parallel.pipeline = 2, recipe.parallel.schedule = row.key;
    const observe::RunEnded ended = ended_of(recipe);
    EXPECT_EQ(ended.steps, alone.steps) << row.key;
    EXPECT_EQ(ended.samples, alone.samples) << row.key;
    EXPECT_NEAR(ended.train_loss, alone.train_loss, 1e-5) << row.key;
    EXPECT_NEAR(ended.test_loss, alone.test_loss, 1e-5) << row.key;
    EXPECT_EQ(ended.test_accuracy, alone.test_accuracy) << row.key;
  }
}

TEST(PipelinedRun, TwoPipelinesShareTheBatch) {
  Recipe recipe = deep_recipe();
  recipe.model.dropout = 0, recipe.data.uneven = "weight", recipe.train.micro_batches = 2;
  const observe::RunEnded alone = ended_of(recipe);
  recipe.parallel.data = 2, recipe.parallel.pipeline = 2;
  const observe::RunEnded ended = ended_of(recipe);
  EXPECT_EQ(ended.samples, alone.samples);
  EXPECT_NEAR(ended.train_loss, alone.train_loss, 1e-4);
  EXPECT_NEAR(ended.test_loss, alone.test_loss, 1e-4);
}

TEST(PipelinedRun, StandsBesideZeroAndRecomputation) {
  Recipe recipe = deep_recipe();
  recipe.model.dropout = 0, recipe.data.uneven = "weight", recipe.train.micro_batches = 2;
  const observe::RunEnded alone = ended_of(recipe);
  recipe.parallel.data = 2, recipe.parallel.pipeline = 2, recipe.parallel.schedule = "zero_bubble";
  for (const int zero : {1, 2, 3}) {
    recipe.parallel.zero = zero;
    for (const char* recompute : {"none", "units"}) {
      recipe.train.recompute = recompute;
      const observe::RunEnded ended = ended_of(recipe);
      EXPECT_NEAR(ended.train_loss, alone.train_loss, 1e-4) << "ZeRO " << zero << ", recompute " << recompute;
      EXPECT_NEAR(ended.test_loss, alone.test_loss, 1e-4) << "ZeRO " << zero << ", recompute " << recompute;
    }
  }
}

TEST(PipelinedRun, ItsCheckpointIsReadByOneWorkerAndTheOtherWayRound) {
  Recipe recipe = deep_recipe();
  recipe.train.checkpoints = true;
  const observe::RunEnded alone = ended_of(recipe);
  for (const std::int64_t first : {1, 2}) {
    const Folder folder;
    recipe.parallel.pipeline = first;
    run_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/4);
    recipe.parallel.pipeline = 3 - first;
    const observe::RunEnded ended = run_in(folder.path(), recipe, /*resume=*/true);
    EXPECT_EQ(ended.steps, alone.steps) << "first " << first;
    EXPECT_NEAR(ended.test_loss, alone.test_loss, 1e-5) << "first " << first;
  }
}

TEST(PipelinedRun, TellsWhatItSentAlongEachAxis) {
  Recipe recipe = deep_recipe();
  recipe.model.hidden = {16, 16, 16}, recipe.model.dropout = 0, recipe.data.drop_last = true, recipe.data.classes = 8;
  const auto sent = [&](int pipeline, int tensor) {
    recipe.parallel.pipeline = pipeline, recipe.parallel.tensor = tensor;
    const observe::RunEnded ended = ended_of(recipe);
    EXPECT_DOUBLE_EQ(ended.communication->bytes_per_step, ended.communication->bytes_pipeline + ended.communication->bytes_tensor);
    return std::pair(*ended.communication, static_cast<double>(ended.steps));
  };
  // Worker 0 hands on 16 values of each of 16 samples in a step, and announces their form once: 128 numbers of 8 bytes.
  const auto [stages, steps] = sent(2, 1);
  EXPECT_DOUBLE_EQ(stages.bytes_pipeline, 16 * 16 * 4 + 128 * 8 / steps);
  EXPECT_EQ(stages.bytes_tensor, 0);

  // As the table of rules counts it: an allreduce between two sends what it adds up once. On top, the loss's sums over the classes.
  const graph::Graph graph = graph_for(recipe.model, make_datasets(recipe).training->info());
  std::int64_t counted = 0;
  for (const auto& layer : graph::tensor_split(graph, 2, false).layers)
    for (const auto* pass : {&layer.forward, &layer.backward})
      for (const graph::Traffic& one : *pass) counted += one.bytes;
  const auto layers = sent(1, 2).first;
  EXPECT_EQ(layers.bytes_pipeline, 0);
  EXPECT_GE(layers.bytes_tensor, static_cast<double>(16 * counted));
  EXPECT_LE(layers.bytes_tensor, static_cast<double>(16 * (counted + 8 * 8)));
  EXPECT_GT(sent(2, 2).first.bytes_pipeline, 0);
}

// The fastest cut of a run would need more memory of a rank than another: with a limit between them the other one is taken.
TEST(PipelinedRun, IsCutWithinTheMemoryOfARank) {
  Recipe recipe = deep_recipe();
  recipe.model.hidden = std::vector<std::int64_t>(12, 64), recipe.model.dropout = 0, recipe.parallel.pipeline = 2;
  recipe.data.batch = recipe.data.train_samples = 256, recipe.train.micro_batches = 2;  // of which the first stage holds all activations
  const auto mesh_of = [&] {
    std::vector<std::string> lines;
    observe::Bus bus;
    bus.add(std::make_unique<On<observe::RunStarted>>([&](const observe::RunStarted& started) { lines = started.mesh; }));
    const SteadyClock clock;
    const std::atomic<bool> stop = false;
    const Folder folder;
    Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop}).run(folder.path());
    return lines;
  };
  recipe.parallel.workers = 2;
  const graph::Graph graph = graph_for(recipe.model, make_datasets(recipe).training->info());
  const auto most = [&] { return memory::largest(memory::estimate(graph, plan_of(recipe))).bytes.total(); };
  const std::vector<std::string> fastest = mesh_of();
  recipe.train.memory_gb = static_cast<double>(most() - 1) / 1e9;
  ASSERT_LE(most(), memory::Plan(plan_of(recipe)).limit) << "there is a cut that fits";
  const std::vector<std::string> fitting = mesh_of();
  EXPECT_EQ(fitting.size(), fastest.size());
  EXPECT_NE(fitting, fastest);
}

TEST(PipelinedRun, MeasuredCostsTrainTheSame) {
  Recipe recipe = deep_recipe();
  const observe::RunEnded alone = ended_of(recipe);
  recipe.parallel.pipeline = 2, recipe.parallel.costs = "measured";
  EXPECT_NEAR(ended_of(recipe).test_loss, alone.test_loss, 1e-5);
}

TEST(PipelinedRun, WhatCannotBeIsRefusedWithTheNearestChoice) {
  const auto refusal = [](const std::function<void(Recipe&)>& change) {
    Recipe recipe = deep_recipe();
    recipe.parallel.pipeline = 2;
    change(recipe);
    return message_of<ConfigError>([&] { ended_of(recipe); });
  };
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.pipeline = 6; }),
              AllOf(HasSubstr("parallel.pipeline=6"), HasSubstr("4 units"), HasSubstr("--mesh data=2,pipeline=3,tensor=1")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.schedule = "interleaved_1f1b", recipe.parallel.chunks = 3; }),
              AllOf(HasSubstr("parallel.chunks=3"), HasSubstr("parallel.chunks=2")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.chunks = 2; }), HasSubstr("interleaved_1f1b"));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.schedule = "1f2b"; }), HasSubstr("1f1b"));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.data = 8, recipe.train.micro_batches = 4; }),
              AllOf(HasSubstr("train.micro_batches=4"), HasSubstr("data.batch=16"), HasSubstr("train.micro_batches=2")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.data = 32, recipe.train.micro_batches = 2; }),
              AllOf(HasSubstr("0 samples"), HasSubstr("data.batch=16"), HasSubstr("use data.batch=64")));
  EXPECT_THAT(refusal([](Recipe& recipe) {
                recipe.parallel.workers = 16, recipe.parallel.data = 8, recipe.parallel.pipeline = 0, recipe.train.micro_batches = 4;
              }),
              HasSubstr("use train.micro_batches=2"))
      << "0: the rest";
}

}  // namespace
}  // namespace paceline::train
