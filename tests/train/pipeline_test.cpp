// Whole runs through a pipeline: the same losses as one worker with the same micro-batches, and what is refused before they start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/schedule/pipeline.h"
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

TEST(PipelinedRun, WhatCannotBeIsRefusedWithTheNearestChoice) {
  const auto refusal = [](const std::function<void(Recipe&)>& change) {
    Recipe recipe = deep_recipe();
    recipe.parallel.pipeline = 2;
    change(recipe);
    return message_of<ConfigError>([&] { ended_of(recipe); });
  };
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.pipeline = 6; }),
              AllOf(HasSubstr("parallel.pipeline=6"), HasSubstr("4 units"), HasSubstr("parallel.pipeline=4")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.schedule = "interleaved_1f1b", recipe.parallel.chunks = 3; }),
              AllOf(HasSubstr("parallel.chunks=3"), HasSubstr("parallel.chunks=2")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.chunks = 2; }), HasSubstr("interleaved_1f1b"));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.schedule = "1f2b"; }), HasSubstr("1f1b"));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.data = 8, recipe.train.micro_batches = 4; }),
              AllOf(HasSubstr("train.micro_batches=4"), HasSubstr("data.batch=16"), HasSubstr("train.micro_batches=2")));
}

}  // namespace
}  // namespace paceline::train
