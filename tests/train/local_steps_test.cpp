// Rules of asynchronous local steps, weight averaging and lock-free updates in whole runs: on the virtual clock to the bit, on threads, and
// among the ranks of processes_test.cpp.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "central_runs.h"

namespace paceline::train {
namespace {

constexpr const char* kOuterRules[] = {"async_nesterov", "delayed_nesterov", "adam_decay", "cgad", "heloco", "look_ahead"};

Recipe local_steps(const std::string& rule, const std::string& executor, std::int64_t workers = 3) {
  Recipe recipe = recipe_of("ps", executor, workers);
  recipe.ps.rule = rule, recipe.ps.optimizer = "worker", recipe.ps.period = 2;
  recipe.optim.name = "adamw", recipe.optim.rate = 0.002;
  return recipe;
}

void expect_resumes(const Recipe& recipe, const std::string& what) {
  const Result through = train_once(recipe);
  EXPECT_EQ(train_once(recipe).ended.state_hash, through.ended.state_hash) << what << " does not repeat";
  const Folder folder;
  EXPECT_EQ(train_in(folder.path(), recipe, false, 11).ended.stopped, "on request");
  EXPECT_EQ(train_in(folder.path(), recipe, true).ended.state_hash, through.ended.state_hash) << what;
}

TEST(LocalSteps, RepeatAndResumeToTheBitOnTheVirtualClock) {
  for (const char* rule : kOuterRules) expect_resumes(local_steps(rule, "virtual"), rule);
  for (const char* rule : {"stability_cap", "dc_staleness_aware"}) {
    Recipe recipe = recipe_of("ps", "virtual", 3);
    recipe.ps.rule = rule;
    expect_resumes(recipe, rule);
  }
}

TEST(LocalSteps, TrainOnThreadsAndOnSeveralServers) {
  for (const char* rule : kOuterRules) {
    Recipe recipe = local_steps(rule, "threads", 2);
    recipe.ps.servers = 2;
    const Result result = train_once(recipe);
    EXPECT_EQ(result.ended.samples, 480) << rule;
    EXPECT_GT(result.ended.served->updates, 10) << rule;
    EXPECT_TRUE(std::isfinite(result.ended.test_loss)) << rule;
  }
}

TEST(LocalSteps, SlowerWorkersVisitAsOftenAsOthers) {
  // One of three workers is four times as slow: with a quarter of the steps it visits the server as often as they do.
  Recipe recipe = local_steps("delayed_nesterov", "virtual");
  recipe.ps.period = 8, recipe.data.train_samples = 1920;
  recipe.timing.distribution = "constant", recipe.timing.slow_workers = {0}, recipe.timing.slow_factor = 4;
  const auto oldest = [&] { return train_once(recipe).ended.served->staleness.back().first; };
  const std::int64_t same = oldest();
  recipe.ps.speeds = {0.25, 1, 1};
  EXPECT_GT(same, 5);
  EXPECT_LE(oldest(), 3);
}

TEST(Downpour, DecaysWeightsOnceForEveryGradient) {
  // One worker. A large decay shows whether it acts on every gradient: n visits later, and not n² gradients later, the weights are as small
  // as those of a worker that pushes each gradient.
  const auto size_with = [](std::int64_t period) {
    Recipe recipe = recipe_of("downpour", "virtual", 1);
    recipe.ps.period = period, recipe.optim.momentum = 0, recipe.optim.rate = 0.01, recipe.optim.weight_decay = 2,
    recipe.optim.decay_norms = true;
    return train_once(recipe).weights().norm().item<double>();
  };
  const double often = size_with(1);
  EXPECT_NEAR(size_with(4) / often, 1, 0.05);
}

TEST(Averaging, IsEvaluatedAndSavedAndTrainingGoesOnWithoutIt) {
  for (const char* strategy : {"asgd", "dana", "ssgd"}) {
    Recipe plain = recipe_of(strategy, "virtual", 3), averaged = plain;
    averaged.ps.averaging = 0.95;
    const Result last = train_once(plain), mean = train_once(averaged);
    EXPECT_GT(distance(mean, last), 1e-3) << strategy;
    EXPECT_LT(distance(mean, last), 0.9) << strategy;
    expect_resumes(averaged, std::string(strategy) + " with averaging");
  }
  Recipe threads = recipe_of("asgd", "threads", 1);
  threads.ps.averaging = 0.95, threads.ps.servers = 2;
  const Result through = train_once(threads);
  const Folder folder;
  train_in(folder.path(), threads, false, 11);
  EXPECT_LT(distance(train_in(folder.path(), threads, true), through), 1e-6) << "the server has its own parameters back";
}

TEST(LockFree, TrainsOnThreads) {
  Recipe recipe = recipe_of("asgd", "threads", 4);
  recipe.ps.lock_free = true, recipe.optim.momentum = 0;
  const Result result = train_once(recipe);
  EXPECT_EQ(result.ended.samples, 480);
  EXPECT_EQ(result.ended.served->updates, 80);
  EXPECT_TRUE(std::isfinite(result.ended.test_loss));
  // One worker has nobody to meet: the same as with the lock, but for the order of a decay's roundings.
  Recipe alone = recipe, locked = recipe;
  alone.parallel.workers = locked.parallel.workers = 1;
  locked.ps.lock_free = false;
  EXPECT_LT(distance(train_once(alone), train_once(locked)), 1e-5);
}

}  // namespace
}  // namespace paceline::train
