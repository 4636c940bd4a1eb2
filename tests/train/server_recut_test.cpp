// Runs with parameter servers that resume with another number of servers or of workers than wrote the checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "central_runs.h"
#include "process_runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

constexpr const char* kRules[] = {"asgd", "dc_asgd", "gap_aware", "dana"};  // with every kind of memory

Recipe recipe_of_rule(const std::string& rule, std::int64_t servers, int workers = 1) {
  Recipe recipe = recipe_for_ranks("ps", workers);
  recipe.ps.rule = rule, recipe.ps.servers = servers, recipe.optim.momentum = 0.9;
  return recipe;
}

Recipe on_threads(Recipe recipe) {
  recipe.ps.executor = "threads", recipe.ps.transport = "grpc";
  return recipe;
}

// One worker's run is the same on any number of servers, so it must go on with the same bits.
TEST(AnotherNumberOfServers, OfThreadsGoesOnWithTheSameBits) {
  for (const std::string rule : kRules)
    for (const auto& [before, after] : {std::pair(1, 3), {3, 2}, {2, 1}}) {
      const Folder folder;
      const Recipe recipe = on_threads(recipe_of_rule(rule, before)), other = on_threads(recipe_of_rule(rule, after));
      const std::string through = train_once(recipe).ended.parameters_hash;
      train_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/7);
      EXPECT_EQ(train_in(folder.path(), other, /*resume=*/true).ended.parameters_hash, through) << rule << ' ' << before << ' ' << after;
    }
}

TEST(AnotherNumberOfServers, OfProcessesGoesOnWithTheSameBits) {
  for (const auto& [before, after] : {std::pair(1, 2), {3, 1}}) {
    const Folder folder;
    const Recipe recipe = recipe_of_rule("dc_asgd", before), other = recipe_of_rule("dc_asgd", after);
    const std::string through = train_among_ranks(recipe, {.servers = before, .workers = 1}).parameters_hash;
    train_among_ranks(recipe, {.servers = before, .workers = 1}, {.folder = folder.path(), .stop_after = 7});
    const observe::RunEnded ended = train_among_ranks(other, {.servers = after, .workers = 1}, {.folder = folder.path(), .resume = true});
    EXPECT_EQ(ended.parameters_hash, through) << before << ' ' << after;
  }
}

// Batch norms' statistics belong to server 0 whatever the ranges are, and so do predictors.
TEST(AnotherNumberOfServers, KeepsWhatOnlyOneOfThemHas) {
  for (const char* strategy : {"asgd", "lc_asgd"}) {
    Recipe recipe = recipe_of(strategy, "threads", 1);
    recipe.model.network = "resnet20", recipe.data.shape = {3, 8, 8}, recipe.data.train_samples = 72, recipe.data.test_samples = 24;
    recipe.ps.servers = 2;
    const Folder folder;
    const std::string through = train_once(recipe).ended.parameters_hash;
    train_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/4);
    recipe.ps.servers = 3;
    EXPECT_EQ(train_in(folder.path(), recipe, /*resume=*/true).ended.parameters_hash, through) << strategy;
  }
}

at::Tensor saved(const Result& result, const std::string& name) { return step::find_saved(result.checkpoint.tensors, name); }

TEST(AnotherNumberOfWorkers, UnderTheVirtualClockGoesOnFromAnyPlace) {
  for (const char* strategy : {"ssgd", "asgd", "ssp", "dc_asgd", "lc_asgd", "dana", "downpour", "k_sync", "k_batch_async", "adasync"})
    for (const std::int64_t workers : {2, 8}) {
      Recipe recipe = recipe_of(strategy, "virtual", 4);
      if (recipe.strategy.name == "k_sync") recipe.ps.group = 2;
      const Folder folder;
      const Result stopped = train_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/8);  // 48 samples
      recipe.parallel.workers = workers;
      const Result ended = train_in(folder.path(), recipe, /*resume=*/true);
      const std::string what = fmt::format("{} with {} workers", strategy, workers);
      EXPECT_EQ(ended.ended.workers, workers) << what;
      EXPECT_EQ(ended.ended.samples, 480) << what;
      EXPECT_GT(ended.ended.served->updates, stopped.ended.served->updates) << what;
      EXPECT_GT(ended.ended.served->virtual_s, stopped.ended.served->virtual_s) << what;
      EXPECT_TRUE(ended.weights().isfinite().all().item<bool>()) << what;
    }
}

// Between two rounds nothing is under way, so nothing is lost.
TEST(AnotherNumberOfWorkers, SynchronousTrainingStaysThatOfOneBatch) {
  for (const char* executor : {"virtual", "threads"}) {
    Recipe recipe = recipe_of("ssgd", executor, 4);
    recipe.optim.momentum = 0.9, recipe.schedule.name = "constant";  // whatever train.epochs is
    const Result through = train_once(recipe);
    const Folder folder;
    recipe.train.epochs = 1;
    train_in(folder.path(), recipe);
    recipe.train.epochs = 2, recipe.parallel.workers = 2;
    const Result ended = train_in(folder.path(), recipe, /*resume=*/true);
    EXPECT_LT(distance(ended, through), 1e-5) << executor;
    EXPECT_EQ(ended.ended.served->updates, through.ended.served->updates) << executor;
  }
}

TEST(AnotherNumberOfWorkers, WithOptimizersOfTheirOwnTheyBeginWithTheMeanOfTheMoments) {
  Recipe recipe = recipe_of("asgd", "virtual", 4);
  recipe.ps.optimizer = "worker", recipe.optim.name = "adam", recipe.optim.rate = 0.002, recipe.train.epochs = 1;
  const Folder folder;
  const at::Tensor before = saved(train_in(folder.path(), recipe), "ps.workers.momentum");
  recipe.parallel.workers = 2, recipe.train.epochs = 2, recipe.optim.rate = 0;
  recipe.optim.beta1 = recipe.optim.beta2 = 1 - 1e-7;  // the moments stay as they are
  const at::Tensor after = saved(train_in(folder.path(), recipe, /*resume=*/true), "ps.workers.momentum");
  ASSERT_EQ(after.size(0), 2);
  EXPECT_TRUE(at::allclose(after[0], before.mean(0), 1e-4, 1e-6));
  EXPECT_TRUE(at::allclose(after[1], before.mean(0), 1e-4, 1e-6));
}

// Its look-ahead goes by the sum of all workers' velocities: those of workers that are gone would stay in it for ever.
TEST(AnotherNumberOfWorkers, DanaForgetsTheVelocitiesOfThoseThatAreGone) {
  for (const std::string executor : {"virtual", "threads"}) {
    Recipe recipe = recipe_of("dana", executor, 4);
    recipe.train.epochs = 1, recipe.optim.momentum = 0.9;
    const Folder folder;
    train_in(folder.path(), recipe);
    recipe.parallel.workers = 2, recipe.train.epochs = 2;
    const Result ended = train_in(folder.path(), recipe, /*resume=*/true);
    const std::string prefix = executor == "virtual" ? "ps." : "ps.0.";
    const at::Tensor sum = saved(ended, prefix + "kept.0") + saved(ended, prefix + "kept.1");
    EXPECT_TRUE(at::allclose(saved(ended, prefix + "kept"), sum, 1e-4, 1e-5)) << executor;
    EXPECT_FALSE(step::saved_or_none(ended.checkpoint.tensors, prefix + "kept.2").defined()) << executor;
  }
}

TEST(AnotherNumberOfWorkers, APlaceThatIsNoWholeNumberOfTheirMinibatchesIsRefused) {
  Recipe recipe = recipe_of("asgd", "virtual", 4);
  const Folder folder;
  train_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/3);  // 18 samples
  recipe.parallel.workers = 2;                                          // 12 a minibatch
  EXPECT_THAT(message_of<ConfigError>([&] { train_in(folder.path(), recipe, true); }), HasSubstr("parallel.workers=2"));
}

TEST(AnotherOptimizer, OfWorkersUnderTheVirtualClockIsRefused) {
  Recipe recipe = recipe_of("asgd", "virtual", 4);
  recipe.ps.optimizer = "worker", recipe.optim.momentum = 0.9;
  const Folder folder;
  train_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/8);
  recipe.optim.name = "adam", recipe.optim.rate = 0.001;
  for (const int workers : {4, 2}) {
    recipe.parallel.workers = workers;
    EXPECT_THAT(message_of<ConfigError>([&] { train_in(folder.path(), recipe, true); }), HasSubstr("[optim]")) << workers;
  }
}

TEST(AnotherExecutor, IsNamed) {
  const Folder clock, threads;
  train_in(clock.path(), recipe_of("asgd", "virtual"), false, 4);
  train_in(threads.path(), recipe_of("asgd", "threads"), false, 4);
  for (const auto& [folder, executor] : {std::pair(&clock, "threads"), {&threads, "virtual"}})
    EXPECT_THAT(message_of<ConfigError>([&] { train_in(folder->path(), recipe_of("asgd", executor), true); }), HasSubstr("ps.executor"));
}

}  // namespace
}  // namespace paceline::train
