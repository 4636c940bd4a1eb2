// A run of real threads that was recorded is replayed under the virtual clock: the same updates with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "central_runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

struct Pair {
  Result real, replayed;
};

/// Trains with threads, and again as they did.
Pair train_twice(Recipe recipe) {
  const Folder folder;
  recipe.timing.record = (folder / "run.csv").string();
  Pair pair{.real = train_once(recipe), .replayed = {}};
  recipe.ps.executor = "virtual";
  recipe.timing.slow_workers.clear();  // the recording has them
  recipe.timing.distribution = "trace", recipe.timing.trace = std::exchange(recipe.timing.record, "");
  pair.replayed = train_once(recipe);
  return pair;
}

void expect_the_same(const Recipe& recipe, const std::string& what) {
  const auto [real, replayed] = train_twice(recipe);
  EXPECT_EQ(replayed.ended.served->updates, real.ended.served->updates) << what;
  EXPECT_EQ(replayed.ended.served->staleness, real.ended.served->staleness) << what;
  EXPECT_EQ(replayed.ended.served->dropped, real.ended.served->dropped) << what;
  EXPECT_EQ(replayed.ended.samples, real.ended.samples) << what;
  EXPECT_TRUE(at::equal(replayed.weights(), real.weights())) << what << ": " << distance(replayed, real);
  EXPECT_NEAR(replayed.ended.train_loss, real.ended.train_loss, 1e-9 * real.ended.train_loss) << what;
  EXPECT_EQ(replayed.ended.parameters_hash, real.ended.parameters_hash) << what;
  EXPECT_GT(replayed.ended.served->virtual_s, 0) << what;
}

TEST(Replay, ARecordedRunHasTheSameUpdatesWithTheSameBits) {
  for (const char* strategy : {"asgd", "ssgd", "ssp", "dc_asgd", "lc_asgd", "dana", "downpour", "k_sync", "k_async"})
    expect_the_same(recipe_of(strategy, "threads", 3), strategy);
}

TEST(Replay, SoHasOneWhoseWorkersGoOnByThemselves) {
  Recipe recipe = recipe_of("ps", "threads", 3);
  recipe.ps.rule = "easgd", recipe.ps.period = 2;
  expect_the_same(recipe, "easgd");
  Recipe steps = recipe_of("asgd", "threads", 3);
  steps.ps.optimizer = "worker";
  expect_the_same(steps, "steps");
}

// Threads stop in the middle of a minibatch that is called off; the virtual clock has computed it by then, and takes its update back.
TEST(Replay, SoHasOneWhoseMinibatchesAreCalledOff) {
  for (const char* optimizer : {"sgd", "adam"}) {
    Recipe recipe = recipe_of("k_sync", "threads", 3);
    recipe.ps.optimizer = "worker", recipe.optim.name = optimizer;
    if (recipe.optim.name == "sgd") recipe.optim.momentum = 0.9;
    else recipe.optim.rate = 0.002;
    recipe.timing.slow_workers = {1}, recipe.timing.slow_factor = 20;
    expect_the_same(recipe, recipe.optim.name);
  }
}

TEST(Replay, BatchNormsStatisticsAreTheSameToo) {
  Recipe recipe = recipe_of("asgd", "threads", 2);
  recipe.model.network = "resnet20";
  recipe.data.shape = {3, 8, 8}, recipe.data.train_samples = 96, recipe.data.test_samples = 32;
  const auto [real, replayed] = train_twice(recipe);
  EXPECT_EQ(replayed.ended.test_loss, real.ended.test_loss);
}

TEST(Replay, OfItsDurationsAloneMakesAnOrderOfItsOwn) {
  const Folder folder;
  Recipe recipe = recipe_of("asgd", "threads", 2);
  recipe.timing.record = (folder / "run.csv").string();
  train_once(recipe);
  recipe.timing.distribution = "durations", recipe.timing.trace = std::exchange(recipe.timing.record, "");
  recipe.ps.executor = "virtual", recipe.strategy.name = "ssgd";
  const Result first = train_once(recipe), second = train_once(recipe);
  EXPECT_EQ(first.ended.state_hash, second.ended.state_hash);
  EXPECT_GT(first.ended.served->virtual_s, 0);
  // As it was, it is a run of another strategy.
  recipe.timing.distribution = "trace", recipe.strategy.name = "downpour", recipe.ps.period = 3;
  EXPECT_THAT(message_of<ConfigError>([&] { train_once(recipe); }), HasSubstr("timing.distribution=durations"));
  recipe.strategy.name = "asgd", recipe.train.epochs = 3;
  EXPECT_THAT(message_of<ConfigError>([&] { train_once(recipe); }), HasSubstr("this one reaches"));
}

TEST(Replay, RefusesToRecordWhatCannotBeReplayed) {
  const auto refusal = [](const std::string& executor, std::int64_t servers, const std::string& file = "run.csv") {
    const Folder folder;
    Recipe recipe = recipe_of("asgd", executor, 2);
    recipe.ps.servers = servers, recipe.timing.record = (folder / file).string();
    return message_of<ConfigError>([&] { train_once(recipe); });
  };
  EXPECT_THAT(refusal("virtual", 1), HasSubstr("use ps.executor=threads"));
  EXPECT_THAT(refusal("processes", 1), HasSubstr("use ps.executor=threads"));
  EXPECT_THAT(refusal("threads", 2), HasSubstr("use ps.servers=1"));
  EXPECT_THAT(refusal("threads", 1, "nowhere/run.csv"), HasSubstr("cannot record"));
}

}  // namespace
}  // namespace paceline::train
