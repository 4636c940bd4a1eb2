// Training with a parameter server: synchronous training equals allreduce, the virtual clock repeats and resumes to the bit, real threads
// train.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "central_runs.h"
#include "paceline/tensor/device.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kCentral[] = {"ssgd", "asgd",     "ssp",    "dc_asgd",      "lc_asgd", "staleness_aware", "gap_aware",
                                    "dana", "downpour", "k_sync", "k_batch_sync", "k_async", "k_batch_async",   "adasync"};

void expect_equals_allreduce(const char* device, const char* executor, std::int64_t workers) {
  Recipe together = recipe_of("allreduce", "auto", workers), centralised = recipe_of("ssgd", executor, workers);
  together.train.device = centralised.train.device = device;
  const Result reference = train_once(together), served = train_once(centralised);
  EXPECT_LT(distance(served, reference), 1e-5) << executor << ", " << workers << " workers on " << device;
  EXPECT_EQ(served.ended.samples, reference.ended.samples);
  ASSERT_TRUE(served.ended.served);
  EXPECT_EQ(served.ended.served->updates, reference.ended.steps);
  EXPECT_EQ(served.ended.served->mean_staleness, 0);
}

TEST(Central, SynchronousTrainingEqualsAllreduce) {
  for (const std::int64_t workers : {2, 3, 4})
    for (const char* executor : {"virtual", "threads"}) expect_equals_allreduce("cpu", executor, workers);
}

TEST(Central, SynchronousTrainingEqualsAllreduceOnAGpu) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  for (const char* executor : {"virtual", "threads"}) expect_equals_allreduce("cuda", executor, 2);
}

TEST(Central, TheVirtualClockRepeatsToTheBit) {
  for (const char* strategy : kCentral) {
    const Result first = train_once(recipe_of(strategy, "virtual")), second = train_once(recipe_of(strategy, "virtual"));
    EXPECT_EQ(first.ended.state_hash, second.ended.state_hash) << strategy;
    EXPECT_EQ(first.ended.served->virtual_s, second.ended.served->virtual_s) << strategy;
    EXPECT_EQ(first.ended.samples, 480) << strategy;
  }
}

void expect_resumes_to_the_bit(const char* device) {
  for (const char* strategy : kCentral) {
    Recipe recipe = recipe_of(strategy, "virtual", 3);
    recipe.train.device = device;
    const Result through = train_once(recipe);
    const Folder folder;
    const Result stopped = train_in(folder.path(), recipe, false, 11);
    EXPECT_EQ(stopped.ended.stopped, "on request");
    EXPECT_EQ(train_in(folder.path(), recipe, true).ended.state_hash, through.ended.state_hash) << strategy << " on " << device;
  }
}

TEST(Central, AStoppedVirtualRunResumesToTheBit) { expect_resumes_to_the_bit("cpu"); }

TEST(Central, AStoppedVirtualRunResumesToTheBitOnAGpu) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  expect_resumes_to_the_bit("cuda");
}

TEST(Central, TheLiteralReadingIsAsgd) {
  Recipe literal = recipe_of("lc_asgd", "virtual"), plain = recipe_of("asgd", "virtual");
  literal.ps.reading = "literal", literal.timing.predictor_ms = literal.timing.latency_ms = plain.timing.latency_ms = 0;
  const Result one = train_once(literal), other = train_once(plain);
  EXPECT_TRUE(at::equal(one.weights(), other.weights()));
  EXPECT_EQ(one.ended.parameters_hash, other.ended.parameters_hash);
  EXPECT_NE(one.ended.state_hash, other.ended.state_hash);  // one has predictors
  EXPECT_FALSE(one.ended.served->actual_loss.empty());
  literal.ps.reading = "normalised", literal.ps.lc_lambda = 1;
  EXPECT_FALSE(at::equal(train_once(literal).weights(), other.weights()));
}

TEST(Central, StalenessIsThatOfTheOthersWorkers) {
  Recipe recipe = recipe_of("asgd", "virtual", 4);
  recipe.timing.distribution = "constant";
  const observe::Served served = *train_once(recipe).ended.served;
  // In a round of equals everybody's gradient waits for those of the three others, but for the first round.
  EXPECT_EQ(served.staleness.back().first, 3);
  EXPECT_GT(served.mean_staleness, 2.5);
  EXPECT_EQ(train_once(recipe_of("asgd", "virtual", 1)).ended.served->mean_staleness, 0);
}

TEST(Central, StragglersHoldSynchronousTrainingUp) {
  const auto virtual_seconds = [](const char* strategy, double factor) {
    Recipe recipe = recipe_of(strategy, "virtual", 4);
    recipe.timing.slow_workers = {2}, recipe.timing.slow_factor = factor;
    return train_once(recipe).ended.served->virtual_s;
  };
  EXPECT_GT(virtual_seconds("ssgd", 5), 3.5 * virtual_seconds("ssgd", 1));
  EXPECT_LT(virtual_seconds("asgd", 5), 2.0 * virtual_seconds("asgd", 1));
}

TEST(Central, ASlowLinkMakesItsWorkersGradientsOld) {
  const auto oldest = [](std::vector<std::int64_t> slow) {
    Recipe recipe = recipe_of("asgd", "virtual", 4);
    recipe.timing.latency_ms = 10, recipe.timing.slow_links = std::move(slow), recipe.timing.slow_link_factor = 50;
    const observe::Served served = *train_once(recipe).ended.served;
    return served.staleness.back().first;
  };
  EXPECT_LE(oldest({}), 6);
  EXPECT_GE(oldest({2}), 15);  // each of the three others visits the server eight times or so meanwhile
}

TEST(Central, WarnsWhereTheServerMadeNoUpdate) {
  Recipe recipe = recipe_of("ps", "virtual", 4);
  recipe.ps.rule = "easgd", recipe.train.epochs = 1;
  const auto said = [&](std::int64_t period) {
    recipe.ps.period = period;
    testing::internal::CaptureStderr();
    train_once(recipe);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(100), HasSubstr("the server made no update in 40 steps"));
  EXPECT_THAT(said(2), Not(HasSubstr("no update")));
}

TEST(Central, AnEpochsLossHasEveryMinibatch) {
  // With a rate that changes nothing the mean is the same, whoever computes the minibatches and when.
  for (const std::int64_t steps : {0, 3}) {
    Recipe recipe = recipe_of("asgd", "virtual", 4);
    recipe.data.train_samples = recipe.data.batch, recipe.train.epochs = 1, recipe.train.steps = steps, recipe.optim.rate = 1e-12;
    const double expected = train_once(recipe).ended.train_loss;
    recipe.ps.executor = "threads";
    EXPECT_NEAR(train_once(recipe).ended.train_loss, expected, 1e-6) << steps;
  }
}

TEST(Central, ThreadsTellOfAStepOnce) {
  Recipe recipe = recipe_of("asgd", "threads");
  recipe.train.checkpoint_every = 7;
  observe::Bus bus;
  std::int64_t latest = 0, samples = 0;
  bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone& e) {
    EXPECT_GT(e.step, latest);
    latest = e.step, samples += e.samples;
  }));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  const Folder folder;
  const auto ended = Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop}).run(folder.path());
  EXPECT_EQ(latest, ended.steps);
  EXPECT_EQ(samples, ended.samples);
}

TEST(Central, ThreadsTrain) {
  for (const char* strategy : kCentral) {
    const Result result = train_once(recipe_of(strategy, "threads", 2));
    EXPECT_EQ(result.ended.samples, 480) << strategy;
    EXPECT_EQ(result.ended.workers, 2);
    EXPECT_TRUE(std::isfinite(result.ended.test_loss)) << strategy;
    EXPECT_GT(result.ended.served->updates, 0) << strategy;
  }
}

TEST(Central, SeveralServersGiveWhatOneGives) {
  Recipe one = recipe_of("ssgd", "threads", 2), three = one;
  three.ps.servers = 3;
  EXPECT_LT(distance(train_once(three), train_once(one)), 1e-6);
}

TEST(Central, ElasticReplicasTrainUnderBothExecutors) {
  for (const char* executor : {"virtual", "threads"}) {
    Recipe recipe = recipe_of("ps", executor, 3);
    recipe.ps.rule = "easgd", recipe.ps.period = 2;
    const Result result = train_once(recipe);
    EXPECT_TRUE(std::isfinite(result.ended.test_loss)) << executor;
    EXPECT_GT(result.ended.served->updates, 0) << executor;
  }
}

TEST(Central, ThreadsGoOnWithAnotherNumberOfWorkers) {
  const Folder folder;
  Recipe recipe = recipe_of("dc_asgd", "threads", 2);
  recipe.train.epochs = 1;
  EXPECT_EQ(train_in(folder.path(), recipe).ended.samples, 240);
  recipe.train.epochs = 2, recipe.parallel.workers = 3;
  const Result ended = train_in(folder.path(), recipe, true);
  EXPECT_EQ(ended.ended.samples, 480);
  EXPECT_EQ(ended.ended.workers, 3);
}

TEST(Central, AllreduceGoesOnFromTheEndOfAnEpochAlone) {
  // A server's place in an epoch counts minibatches.
  Recipe served = recipe_of("asgd", "virtual"), together = recipe_of("allreduce", "auto");
  served.optim.momentum = together.optim.momentum = 0;  // that of a server lies elsewhere
  const Folder inside, whole;
  train_in(inside.path(), served, false, 3);
  EXPECT_THAT(message_of<ConfigError>([&] { train_in(inside.path(), together, true); }),
              AllOf(HasSubstr("behind batch 3 of epoch 1"), HasSubstr("6 samples (data.batch=24, strategy.name=asgd, parallel.workers=4)"),
                    HasSubstr("24 samples (data.batch=24, strategy.name=allreduce, parallel.workers=4)")));
  served.train.epochs = 1;
  train_in(whole.path(), served);
  EXPECT_EQ(train_in(whole.path(), together, true).ended.samples, 480);
}

TEST(Central, CancelledWorkersLeaveOff) {
  // Of two workers the first to push makes the update. Were the slow one to finish what it began, it would hardly ever begin anything.
  Recipe recipe = recipe_of("k_sync", "threads", 2);
  recipe.timing.slow_workers = {1}, recipe.timing.slow_factor = 2000;
  recipe.data.train_samples = 2400, recipe.train.epochs = 1;
  const Result result = train_once(recipe);
  EXPECT_EQ(result.ended.samples, 2400);
  EXPECT_GT(result.ended.served->dropped, 5);
}

Recipe with_own_optimizers(const std::string& strategy, const std::string& executor, const std::string& optimizer) {
  Recipe recipe = recipe_of(strategy, executor, 3);
  recipe.ps.optimizer = "worker";
  recipe.optim.name = optimizer;
  if (optimizer == "adam") recipe.optim.rate = 0.002;
  return recipe;
}

TEST(Central, OptimizersOnWorkersRepeatAndResumeToTheBit) {
  for (const char* strategy : {"asgd", "ssgd", "downpour", "k_sync"})
    for (const char* optimizer : {"sgd", "adam", "lars"}) {
      const Recipe recipe = with_own_optimizers(strategy, "virtual", optimizer);
      const Result through = train_once(recipe);
      EXPECT_EQ(train_once(recipe).ended.state_hash, through.ended.state_hash) << strategy << ' ' << optimizer;
      const Folder folder;
      train_in(folder.path(), recipe, false, 11);
      EXPECT_EQ(train_in(folder.path(), recipe, true).ended.state_hash, through.ended.state_hash) << strategy << ' ' << optimizer;
    }
}

TEST(Central, AnOptimizerOnTheOnlyWorkerIsThatOfTheServer) {
  for (const char* executor : {"virtual", "threads"})
    for (const char* optimizer : {"sgd", "adam"}) {
      Recipe own = with_own_optimizers("asgd", executor, optimizer);
      own.parallel.workers = 1, own.optim.weight_decay = 0.01, own.optim.clip_norm = 0.5;
      Recipe served = own;
      served.ps.optimizer = "server";
      EXPECT_LT(distance(train_once(own), train_once(served)), 1e-5) << executor << ' ' << optimizer;
    }
}

TEST(Central, ThreadsKeepTheirWorkersOptimizersInACheckpoint) {
  Recipe recipe = with_own_optimizers("asgd", "threads", "adam");
  recipe.parallel.workers = 1;  // nobody else's pushes come between
  const Result through = train_once(recipe);
  const Folder folder;
  train_in(folder.path(), recipe, false, 11);
  const observe::RunEnded resumed = train_in(folder.path(), recipe, true).ended;
  EXPECT_EQ(resumed.state_hash, through.ended.state_hash);
  EXPECT_NEAR(resumed.train_loss, through.ended.train_loss, 1e-9);
}

TEST(Central, BatchNormsAreEvaluatedInThreeWays) {
  for (const char* executor : {"virtual", "threads"}) {
    Recipe recipe = recipe_of("asgd", executor, 2);
    recipe.model.network = "resnet20";
    recipe.data.shape = {3, 8, 8}, recipe.data.train_samples = 96, recipe.data.test_samples = 32;
    const observe::RunEnded ended = train_once(recipe).ended;
    std::vector<std::string> names;
    for (const observe::EvaluatedView& view : ended.views) names.push_back(view.view);
    EXPECT_THAT(names, ElementsAre("async", "worker", "recomputed"));
    EXPECT_EQ(ended.views[0].loss, ended.test_loss);
    for (const observe::EvaluatedView& view : ended.views) EXPECT_TRUE(std::isfinite(view.loss)) << view.view;
    EXPECT_NE(ended.views[0].loss, ended.views[1].loss);
  }
}

TEST(Central, RefusesWhatCannotBe) {
  const auto refusal = [](const std::function<void(Recipe&)>& change, const char* strategy = "asgd") {
    Recipe recipe = recipe_of(strategy, "virtual");
    change(recipe);
    return message_of<ConfigError>([&] { train_once(recipe); });
  };
  EXPECT_THAT(refusal([](Recipe& r) { r.ps.group = 9; }, "k_sync"), HasSubstr("9"));
  EXPECT_THAT(refusal([](Recipe& r) { r.ps.lc_lambda = NAN; }, "lc_asgd"), HasSubstr("lc_lambda"));
  EXPECT_THAT(refusal([](Recipe& r) { r.optim.name = "adam"; }, "dana"), HasSubstr("dana"));
  EXPECT_THAT(refusal([](Recipe& r) { r.ps.rule = "dana", r.ps.consistency = "bsp"; }, "ps"), HasSubstr("ps.consistency=asp"));
  EXPECT_THAT(refusal([](Recipe& r) { r.data.batch = 25; }), AllOf(HasSubstr("among 4 workers"), Not(HasSubstr("weight"))));
  EXPECT_THAT(refusal([](Recipe& r) { r.ps.gap_decay = 1; }), HasSubstr("ps.gap_decay=1"));
  EXPECT_THAT(refusal([](Recipe& r) { r.ps.dc_decay = 1; }), HasSubstr("less than 1"));
  EXPECT_THAT(refusal([](Recipe& r) { r.ps.transport = "mpi"; }), HasSubstr("ps.executor=processes"));
  for (const char* executor : {"auto", "threads"}) {
    EXPECT_THAT(refusal([&](Recipe& r) { r.ps.executor = executor, r.timing.slow_links = {1}; }), HasSubstr("timing.slow_links"));
    EXPECT_THAT(refusal([&](Recipe& r) { r.ps.executor = executor, r.timing.network_distribution = "gamma"; }),
                AllOf(HasSubstr("timing.network_distribution"), HasSubstr("ps.executor=virtual")));
  }
  for (const char* rule : {"dc_asgd", "lc_asgd", "dana", "easgd"})
    EXPECT_THAT(refusal([&](Recipe& r) { r.ps.rule = rule, r.ps.optimizer = "worker"; }, "ps"), HasSubstr("ps.optimizer=server")) << rule;
}

}  // namespace
}  // namespace paceline::train
