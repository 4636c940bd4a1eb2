// Training with servers and workers that share nothing but messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process_runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

constexpr int kWorkers = 2;

TEST(Processes, WorkersGoOnByThemselvesBetweenVisits) {
  for (const std::string rule : {"downpour", "easgd", "async_nesterov", "delayed_nesterov", "adam_decay", "cgad", "heloco", "look_ahead"}) {
    Recipe recipe = recipe_for_ranks("ps");
    recipe.ps.rule = rule, recipe.ps.period = 2, recipe.ps.averaging = 0.9;
    if (rule != "downpour" && rule != "easgd") recipe.ps.optimizer = "worker", recipe.optim.name = "adamw", recipe.optim.rate = 0.002;
    const observe::RunEnded ended = train_among_ranks(recipe);
    EXPECT_EQ(ended.samples, recipe.train.epochs * recipe.data.train_samples) << rule;
    EXPECT_TRUE(std::isfinite(ended.test_loss)) << rule;
    const std::int64_t minibatches = recipe.train.epochs * kStepsPerEpoch * kWorkers;
    EXPECT_GE(ended.served->updates, minibatches / 2 - kWorkers) << rule;  // at the end a worker may be between two visits
    EXPECT_LE(ended.served->updates, minibatches / 2) << rule;
  }
}

TEST(Processes, AMinibatchThatGrowsPastTheSamplesIsAllOfThem) {
  Recipe recipe = recipe_for_ranks("asgd");
  recipe.train.epochs = 2, recipe.data.train_samples = 24;
  recipe.schedule.batch_milestones = {1}, recipe.schedule.batch_factor = 4;  // 64, of which a worker's minibatch is 32
  EXPECT_EQ(train_among_ranks(recipe).samples, 24 + 24);
}

TEST(Processes, AnEpochsLossHasEveryMinibatch) {
  Recipe recipe = recipe_for_ranks("asgd");
  recipe.data.train_samples = recipe.data.batch, recipe.train.epochs = 1, recipe.optim.rate = 1e-12;
  Recipe played = recipe;
  played.ps = {}, played.ps.executor = "virtual";
  const Folder folder;
  EXPECT_NEAR(train_among_ranks(recipe).train_loss, run_in(folder.path(), played).train_loss, 1e-6);
}

TEST(Processes, RefuseARecipeWithoutServersOfItsOwnBeforeAnythingStarts) {
  const ps::Cluster nobody;
  ps::Cluster server, worker;
  server.role = ps::Cluster::Role::server, worker.role = ps::Cluster::Role::worker;
  server.workers = worker.workers = 2, server.servers = worker.servers = {"a:1", "b:2"};
  Recipe recipe = tiny_recipe();
  EXPECT_EQ(recipe_for(recipe, nobody).ps.executor, "auto");
  for (const ps::Cluster& one : {server, worker}) {
    recipe.strategy.name = "auto", recipe.ps.executor = "auto";
    EXPECT_THAT(message_of<ConfigError>([&] { recipe_for(recipe, one); }), HasSubstr("strategy 'auto' has no parameter server"));
    recipe.strategy.name = "asgd";
    const Recipe fitting = recipe_for(recipe, one);
    EXPECT_EQ(fitting.ps.executor, "processes");
    EXPECT_EQ(fitting.ps.servers, 2);
    EXPECT_EQ(fitting.parallel.workers, 2);
    recipe.train.device = "auto";
    EXPECT_EQ(recipe_for(recipe, one).train.device, "cpu") << "whatever this machine has";
    recipe.train.device = "cuda";
    EXPECT_THAT(message_of<ConfigError>([&] { recipe_for(recipe, one); }), HasSubstr("leave train.device out"));
    recipe.train.device = "cpu";
    for (const char* executor : {"virtual", "threads"}) {
      recipe.ps.executor = executor;
      EXPECT_THAT(message_of<ConfigError>([&] { recipe_for(recipe, one); }), HasSubstr("leave ps.executor out"));
    }
  }
}

TEST(Processes, RefuseACompressionThatPushesCannotHave) {
  Recipe recipe = recipe_for_ranks("asgd");
  recipe.comm.compression = "fp16";
  validate(recipe);
  recipe.comm.compression = "powersgd";
  EXPECT_THAT(message_of<ConfigError>([&] { validate(recipe); }), HasSubstr("cannot compress a push"));
  recipe.strategy.name = "ps", recipe.ps.rule = "easgd", recipe.comm.compression = "fp16";
  EXPECT_THAT(message_of<ConfigError>([&] { validate(recipe); }), HasSubstr("push parameters"));
}

}  // namespace
}  // namespace paceline::train
