// Workers as threads of one process: runs repeat, resume to the bit, and go on with another number of workers.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <thread>

#include "paceline/base/affinity.h"
#include "paceline/comm/engine.h"
#include "paceline/train/workers.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Recipe recipe_of(std::int64_t workers) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = workers;
  return recipe;
}

observe::RunEnded ended_of(const Recipe& recipe) {
  const Folder folder;
  return run_in(folder.path(), recipe);
}

TEST(Workers, RunsRepeatAndComeNearToOneWorker) {
  const observe::RunEnded first = ended_of(recipe_of(2)), second = ended_of(recipe_of(2)), alone = ended_of(recipe_of(1));
  EXPECT_EQ(first.state_hash, second.state_hash);
  EXPECT_EQ(first.steps, alone.steps);
  EXPECT_EQ(first.samples, alone.samples);
  EXPECT_NEAR(first.train_loss, alone.train_loss, 1e-4);
  EXPECT_NEAR(first.test_loss, alone.test_loss, 1e-4);
  ASSERT_TRUE(first.communication.has_value());
  EXPECT_GT(first.communication->bytes_per_step, 0);
}

TEST(Workers, AStoppedRunResumesToTheBit) {
  for (const char* strategy : {"allreduce", "local_sgd", "stale_sync"}) {
    Recipe recipe = recipe_of(2);
    recipe.strategy.name = strategy;
    const observe::RunEnded through = ended_of(recipe);
    const Folder folder;
    const observe::RunEnded stopped = run_in(folder.path(), recipe, false, 2);
    EXPECT_EQ(stopped.stopped, "on request");
    EXPECT_LT(stopped.steps, through.steps);
    EXPECT_EQ(run_in(folder.path(), recipe, true).state_hash, through.state_hash) << strategy;
  }
}

TEST(Workers, ARunGoesOnWithAnotherNumberOfWorkers) {
  for (const char* compression : {"none", "int8", "topk", "dgc"}) {
    Recipe recipe = recipe_of(1);
    recipe.comm.compression = compression;
    const Folder folder;
    std::int64_t steps = 0;
    for (const std::int64_t workers : {1, 2, 1, 2, 4}) {
      recipe.parallel.workers = workers;
      const observe::RunEnded ended = run_in(folder.path(), recipe, /*resume=*/steps > 0, workers < 4 ? steps + 2 : 0);
      EXPECT_EQ(ended.workers, workers) << compression;
      EXPECT_GT(ended.steps, steps) << compression;
      steps = ended.steps;
    }
    EXPECT_EQ(steps, kStepsPerEpoch * kEpochs) << compression;
  }
}

TEST(Workers, ARaggedEpochReachesEverySample) {
  Recipe recipe = recipe_of(3);
  recipe.data.drop_last = false, recipe.data.uneven = "weight";
  const observe::RunEnded together = ended_of(recipe), alone = ended_of([&] {
                                                         Recipe one = recipe;
                                                         one.parallel.workers = 1;
                                                         return one;
                                                       }());
  EXPECT_EQ(together.samples, alone.samples);
  EXPECT_NEAR(together.train_loss, alone.train_loss, 1e-4);
}

TEST(Workers, APaddedBatchGivesEveryWorkerEquallyMany) {
  Recipe recipe = recipe_of(3);
  recipe.data.drop_last = false, recipe.data.uneven = "pad";
  recipe.data.train_samples += 5;  // a ragged batch
  const observe::RunEnded padded = ended_of(recipe), again = ended_of(recipe);
  EXPECT_EQ(padded.steps, (kStepsPerEpoch + 1) * kEpochs) << "the batch is the recipe's";
  EXPECT_EQ(padded.samples, (18 * kStepsPerEpoch + 6) * kEpochs) << "16 samples count as 18, and 5 as 6";
  EXPECT_EQ(padded.state_hash, again.state_hash);
  recipe.strategy.batch_norm = "sync";
  EXPECT_EQ(ended_of(recipe).steps, padded.steps) << "every worker has samples, so statistics can be shared";
}

TEST(Workers, AProcessAmongOthersOfItsHostKeepsToItsPartOfTheCores) {
  const std::vector<int> all = allowed_cores(), part = part_of(all, 1, 2);
  if (part.empty()) GTEST_SKIP() << "one core has no parts";
  std::vector<int> seen;
  observe::Bus bus;
  bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone&) { seen = allowed_cores(); }));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  const Folder folder;
  comm::World second;
  second.local_rank = 1, second.local_size = 2;
  for (int run = 0; run < 2; ++run) {
    Workers(recipe_of(1), second, {.bus = bus, .clock = clock, .stop = stop}).run(folder.path() / std::to_string(run));
    EXPECT_EQ(seen, part) << "not a part of a part";
    EXPECT_EQ(allowed_cores(), all);
  }
}

TEST(Workers, ComputeWithAsManyThreadsAsOpenMpWasToldWhereTheRecipeIsSilent) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  const auto threads_of = [](std::int64_t workers, std::int64_t threads) {
    Recipe recipe = recipe_of(workers);
    recipe.train.threads = threads, recipe.train.epochs = 1;
    int seen = 0;
    observe::Bus bus;
    bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone&) { seen = at::get_num_threads(); }));
    const SteadyClock clock;
    const std::atomic<bool> stop = false;
    const Folder folder;
    Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop}).run(folder.path());
    return seen;
  };
  const int most = omp_get_thread_limit();
  ::setenv("OMP_NUM_THREADS", "6", 1);
  EXPECT_EQ(threads_of(1, 0), std::min(6, most));
  EXPECT_EQ(threads_of(2, 0), std::min(3, most)) << "of each";
  EXPECT_EQ(threads_of(2, 2), std::min(2, most));
  before ? ::setenv("OMP_NUM_THREADS", kept.c_str(), 1) : ::unsetenv("OMP_NUM_THREADS");
}

TEST(Workers, AGrowingBatchIsSharedEvenlyOrRefusedWithWhatMakesItGrow) {
  Recipe recipe = recipe_of(2);
  recipe.train.epochs = 2;
  recipe.data.batch = 64, recipe.data.train_samples = 101;
  recipe.schedule.batch_milestones = {1};
  EXPECT_EQ(ended_of(recipe).samples, 64 + 100) << "128 are not there, and 101 cannot be divided";

  recipe.parallel.workers = 4;
  recipe.data.batch = 4, recipe.schedule.batch_factor = 1.5;
  EXPECT_THAT(message_of<ConfigError>([&] { ended_of(recipe); }),
              AllOf(HasSubstr("6 in epoch 2"), HasSubstr("schedule.batch_factor"), HasSubstr("schedule.largest_batch"),
                    HasSubstr("data.uneven=pad"), Not(HasSubstr("data.batch=4 or 8"))));
}

TEST(Workers, OneThatFailsEndsTheRunWithItsOwnWords) {
  Recipe recipe = recipe_of(2);
  recipe.comm.fail_at = {1, 6};
  recipe.comm.deadline_s = 20;
  const Folder folder;
  try {
    run_in(folder.path(), recipe);
    ADD_FAILURE() << "the run should have failed";
  } catch (const Error& problem) {
    EXPECT_THAT(problem.what(), HasSubstr("1"));
  }
}

/// What each of two trainers says that cannot go on, after `prepare(trainer, rank)`; worker 0 writes in `folder`.
template <class Problem>
std::array<std::string, 2> complaints_of_two(const Recipe& recipe, const std::filesystem::path& folder,
                                             const FoundCheckpoint* of_worker_1 = nullptr) {
  observe::Bus bus;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  auto comms = comm::local_group(2, recipe.comm);
  std::array<std::string, 2> messages;
  const auto work = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const FoundCheckpoint* from = rank == 1 ? of_worker_1 : nullptr;
    Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .comm = comms[at].get(), .from = from});
    messages[at] = message_of<Problem>([&] { trainer.run(rank == 0 ? folder : std::filesystem::path()); });
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return messages;
}

TEST(Workers, OnlyTheOneWhoWritesCheckpointsSpeaksOfThemWhenTheRunDiverges) {
  Recipe recipe = recipe_of(2);
  recipe.optim.rate = 1e30;
  const Folder folder;
  const auto messages = complaints_of_two<Diverged>(recipe, folder.path());
  EXPECT_THAT(messages[0], AllOf(HasSubstr("the loss is"), HasSubstr("There is no checkpoint yet")));
  EXPECT_THAT(messages[1], AllOf(HasSubstr("the loss is"), Not(HasSubstr("checkpoint"))));
}

TEST(Workers, WaitForADiskThatIsSlowerThanTheDeadline) {
  Recipe recipe = recipe_of(2);
  recipe.comm.deadline_s = 0.4;
  recipe.train.epochs = 1;
  observe::Bus bus;
  const auto rest = [](const auto&) { std::this_thread::sleep_for(std::chrono::milliseconds(500)); };
  bus.add(std::make_unique<On<observe::RunStarted>>(rest));
  bus.add(std::make_unique<On<observe::CheckpointWritten>>(rest));
  bus.add(std::make_unique<On<observe::Evaluated>>(rest));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  const Folder folder;
  Workers workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop});
  EXPECT_GT(workers.run(folder.path()).steps, 0);
}

TEST(Workers, GoOnFromOnePlace) {
  Recipe recipe = recipe_of(2);
  recipe.train.epochs = 1;
  const Folder folder, other_folder;
  run_in(folder.path(), recipe);
  const FoundCheckpoint from = newest_good_checkpoint(folder.path());
  const auto messages = complaints_of_two<ConfigError>(recipe, other_folder.path(), &from);
  for (const std::string& message : messages) EXPECT_THAT(message, HasSubstr("worker 0 continues from step 0 and worker 1 from step 6"));
}

TEST(Workers, ReadTheirDataWhenTheyKnowOneAnother) {
  // So whose data cannot be read is known to the others at once, and whose take long is waited for.
  const Folder folder;
  const auto said_by = [&](int rank) {
    comm::World world;
    world.rank = world.local_rank = rank, world.size = world.local_size = 2;
    world.source = "paceline run", world.job = fmt::format("workers-test-{}", ::getpid());
    Recipe recipe = recipe_of(2);
    if (rank == 1) recipe.data.name = "mnist", recipe.data.root = folder / "nothing";
    observe::Bus bus;
    const SteadyClock clock;
    const std::atomic<bool> stop = false;
    return message_of<Error>([&] { const Workers workers(recipe, world, {.bus = bus, .clock = clock, .stop = stop}); });
  };
  std::string first, second;
  std::thread thread([&] { first = said_by(0); }), other([&] { second = said_by(1); });
  thread.join(), other.join();
  EXPECT_THAT(first, AllOf(HasSubstr("rank 1"), Not(HasSubstr("in time"))));
  EXPECT_THAT(second, HasSubstr("nothing"));
}

TEST(Workers, RefuseWhatTheyCannotShare) {
  EXPECT_THAT(message_of<ConfigError>([] { ended_of(recipe_of(3)); }), AllOf(HasSubstr("among 3 workers"), HasSubstr("data.uneven")));
  Recipe processes = recipe_of(2);
  processes.comm.engine = "shm";
  EXPECT_THAT(message_of<ConfigError>([&] { ended_of(processes); }), HasSubstr("paceline run -np 2"));
  Recipe sync = recipe_of(2);
  sync.strategy.batch_norm = "sync", sync.data.drop_last = false;
  EXPECT_THAT(message_of<ConfigError>([&] { ended_of(sync); }), HasSubstr("data.drop_last=true"));
}

}  // namespace
}  // namespace paceline::train
