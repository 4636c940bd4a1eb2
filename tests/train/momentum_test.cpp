// Momentum on the server where an update has several gradients: the same as without a server, and as much as a tenfold rate.
#include <gtest/gtest.h>

#include "central_runs.h"

namespace paceline::train {
namespace {

Recipe gathered(const std::string& strategy, std::int64_t workers, std::int64_t group) {
  Recipe recipe = recipe_of(strategy, "virtual", workers);
  recipe.ps.group = group, recipe.timing.distribution = "constant";
  recipe.optim.momentum = 0.9, recipe.optim.weight_decay = 0.01;
  return recipe;
}

TEST(Momentum, OfAllWorkersTogetherIsThatOfAllreduce) {
  for (const char* strategy : {"k_sync", "k_async"}) {  // contributors wait: K = all is synchronous
    const Recipe served = gathered(strategy, 4, 4);
    Recipe together = served;
    together.strategy.name = "allreduce";
    const Result result = train_once(served);
    EXPECT_LT(distance(result, train_once(together)), 1e-6) << strategy;
    EXPECT_EQ(result.ended.served->mean_staleness, 0) << strategy;
  }
}

TEST(Momentum, OfTheOnlyWorkerIsThatOfPlainTraining) {
  for (const char* strategy : {"k_batch_async", "k_batch_sync"}) {
    const Recipe served = gathered(strategy, 1, 1);
    Recipe alone = served;
    alone.strategy.name = "single";
    EXPECT_LT(distance(train_once(served), train_once(alone)), 1e-6) << strategy;
  }
}

TEST(SlowMomentum, AtATenthOfTheRateLearnsAsMuch) {
  for (const char* strategy : {"ssgd", "k_sync", "k_async", "k_batch_async"}) {
    Recipe recipe = gathered(strategy, 8, 0);
    recipe.data.batch = 64, recipe.data.train_samples = 1600, recipe.train.epochs = 12;
    recipe.schedule.name = "one_cycle", recipe.schedule.warmup_epochs = 0, recipe.optim.weight_decay = 0;
    recipe.optim.rate = 0.02;
    const double heavy = train_once(recipe).ended.train_loss;
    recipe.optim.momentum = 0, recipe.optim.rate = 0.2;
    const double plain = train_once(recipe).ended.train_loss;
    EXPECT_LT(std::abs(heavy - plain), 0.1 * plain) << strategy << ": " << heavy << " and " << plain;
  }
}

}  // namespace
}  // namespace paceline::train
