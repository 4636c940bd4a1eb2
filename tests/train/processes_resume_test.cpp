// Checkpoints of servers and workers that are processes: a run goes on from one where it stopped, writes them in the background, and
// exchanges them with workers that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "paceline/base/safetensors.h"
#include "paceline/observe/step_count.h"
#include "paceline/train/checkpoint_index.h"
#include "process_runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

/// The same run in one piece, and stopped after some steps and resumed.
struct Pieces {
  observe::RunEnded through, stopped, resumed;
};

Pieces in_pieces(const Recipe& recipe, const Fleet& fleet, std::int64_t stop_after = 7) {
  Pieces pieces;
  pieces.through = train_among_ranks(recipe, fleet);
  const Folder folder;
  pieces.stopped = train_among_ranks(recipe, fleet, {.folder = folder.path(), .stop_after = stop_after});
  pieces.resumed = train_among_ranks(recipe, fleet, {.folder = folder.path(), .resume = true});
  return pieces;
}

void expect_the_same_bits(const Recipe& recipe, int servers, const std::string& what) {
  const Pieces pieces = in_pieces(recipe, {.servers = servers, .workers = 1});
  EXPECT_EQ(pieces.stopped.stopped, "on request") << what;
  EXPECT_LT(pieces.stopped.steps, pieces.through.steps) << what;
  EXPECT_EQ(pieces.resumed.state_hash, pieces.through.state_hash) << what;
  EXPECT_EQ(pieces.resumed.parameters_hash, pieces.through.parameters_hash) << what;
  EXPECT_EQ(pieces.resumed.samples, pieces.through.samples) << what;
  EXPECT_EQ(pieces.resumed.train_loss, pieces.through.train_loss) << what;
  EXPECT_EQ(pieces.resumed.served->updates, pieces.through.served->updates) << what;
}

TEST(ProcessesResume, OneWorkerToTheBit) {
  for (const int servers : {1, 2})
    for (const std::string rule : {"asgd", "dc_asgd", "gap_aware"}) {
      Recipe recipe = recipe_for_ranks("ps", 1);
      recipe.ps.rule = rule, recipe.ps.servers = servers, recipe.optim.momentum = 0.9;
      expect_the_same_bits(recipe, servers, rule + " on " + std::to_string(servers));
    }
}

TEST(ProcessesResume, WhatAWorkerKeepsForItselfGoesOn) {
  for (const int servers : {1, 2}) {
    Recipe recipe = recipe_for_ranks("asgd", 1);
    recipe.ps.servers = servers;
    for (const char* compression : {"topk", "int8", "dgc"}) {
      recipe.comm.compression = compression;
      recipe.optim.momentum = compression == std::string("dgc") ? 0.9 : 0;
      expect_the_same_bits(recipe, servers, compression);
    }
    Recipe steps = recipe_for_ranks("ps", 1);
    steps.ps.servers = servers;
    steps.ps.rule = "async_nesterov", steps.ps.optimizer = "worker", steps.ps.period = 1;
    steps.optim.name = "adamw", steps.optim.rate = 0.002;
    expect_the_same_bits(steps, servers, "its own optimizer");
  }
}

TEST(ProcessesResume, SynchronousWorkersToTheBitInTheMiddleOfARound) {
  for (const int servers : {1, 2}) {
    Recipe recipe = recipe_for_ranks("ssgd");
    recipe.ps.servers = servers, recipe.optim.momentum = 0.9;
    const Pieces pieces = in_pieces(recipe, {.servers = servers, .workers = 2});
    EXPECT_EQ(pieces.resumed.parameters_hash, pieces.through.parameters_hash) << servers;
  }
}

TEST(ProcessesResume, SeveralWorkersGoOnFromTheStepThatTheyReached) {
  const Recipe recipe = recipe_for_ranks("asgd");
  const Folder folder;
  const observe::RunEnded stopped = train_among_ranks(recipe, {}, {.folder = folder.path(), .stop_after = 14});
  const Position place = newest_good_checkpoint(folder.path()).second.position;
  EXPECT_EQ(place.step, stopped.steps);
  EXPECT_EQ(place.epoch, stopped.steps / (2 * kStepsPerEpoch));
  std::vector<std::int64_t> first;
  auto note = std::make_unique<On<observe::RunStarted>>([&](const observe::RunStarted& started) { first.push_back(started.first_step); });
  const observe::RunEnded ended = train_among_ranks(recipe, {}, {.folder = folder.path(), .resume = true, .listener = std::move(note)});
  EXPECT_THAT(first, testing::ElementsAre(place.step));
  EXPECT_EQ(ended.steps, kEpochs * kStepsPerEpoch * 2);
  EXPECT_EQ(ended.samples, kEpochs * recipe.data.train_samples);
  EXPECT_EQ(ended.served->gradients, ended.steps) << "those before the checkpoint count too";
}

TEST(ProcessesResume, AnotherNumberOfWorkersReadsTheEndOfAnEpoch) {
  Recipe recipe = recipe_for_ranks("ps");
  recipe.ps.rule = "dc_asgd", recipe.comm.compression = "topk", recipe.train.epochs = 1;
  for (const int workers : {1, 4}) {
    const Folder folder;
    train_among_ranks(recipe, {}, {.folder = folder.path()});
    Recipe other = recipe;
    other.train.epochs = 2, other.parallel.workers = workers;
    const observe::RunEnded ended = train_among_ranks(other, {.servers = 1, .workers = workers}, {.folder = folder.path(), .resume = true});
    EXPECT_EQ(ended.samples, 2 * recipe.data.train_samples);
    EXPECT_EQ(ended.steps, kStepsPerEpoch * (2 + workers));
  }
}

TEST(ProcessesResume, ThreadsAndProcessesReadEachOthers) {
  Recipe recipe = recipe_for_ranks("ps", 1);
  recipe.ps.rule = "dc_asgd", recipe.ps.servers = 2, recipe.optim.momentum = 0.9;
  Recipe threads = recipe;
  threads.ps.executor = "threads", threads.ps.transport = "grpc";
  const Fleet fleet{.servers = 2, .workers = 1};
  const observe::RunEnded through = train_among_ranks(recipe, fleet);
  const Folder one, other;
  train_among_ranks(recipe, fleet, {.folder = one.path(), .stop_after = 7});
  EXPECT_EQ(run_in(one.path(), threads, /*resume=*/true).parameters_hash, through.parameters_hash);
  run_in(other.path(), threads, /*resume=*/false, /*stop_after=*/7);
  EXPECT_EQ(train_among_ranks(recipe, fleet, {.folder = other.path(), .resume = true}).parameters_hash, through.parameters_hash);
}

/// The names of the tensors in a shard.
std::vector<std::string> names_in(const std::filesystem::path& checkpoint, std::size_t shard, std::size_t shards) {
  std::vector<std::string> names;
  const safetensors::File file(checkpoint / shard_file(shard, shards));
  for (const safetensors::Tensor& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

TEST(ProcessesCheckpoints, EveryServerAndWorkerWritesItsOwnPartAlone) {
  constexpr std::size_t kServers = 3, kShards = kServers + 2;
  Recipe recipe = recipe_for_ranks("ssgd");  // every worker takes part in every round
  recipe.ps.servers = kServers, recipe.optim.momentum = 0.9, recipe.comm.compression = "topk";
  const Folder folder;
  const observe::RunEnded ended = train_among_ranks(recipe, {.servers = kServers, .workers = 2}, {.folder = folder.path()});
  const auto place = list_checkpoints(folder.path()).front();
  std::vector<std::int64_t> parameters(kServers);
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    const bool server = shard < kServers;
    const std::string own = server ? fmt::format("ps.{}.", shard) : fmt::format("ps.worker.{}.", shard - kServers);
    const std::vector<std::string> names = names_in(place, shard, kShards);
    EXPECT_THAT(names, testing::Contains(own + (server ? "optim.momentum" : "residual")));
    for (const std::string& name : names)
      EXPECT_TRUE(name.starts_with(own) || (server && name.starts_with("model."))) << shard << " has " << name;
    const safetensors::File file(place / shard_file(shard, kShards));
    for (const safetensors::Tensor& tensor : file.tensors())
      if (server && tensor.name.starts_with("model.") && tensor.dtype == safetensors::Dtype::F32)
        parameters[shard] += static_cast<std::int64_t>(tensor.data.size()) / 4;
  }
  const auto [least, most] = std::ranges::minmax(parameters);
  EXPECT_GT(least, 0);
  EXPECT_LT(most, 2 * least) << "ranges of about the same length";
  const Checkpoint read = newest_good_checkpoint(folder.path()).second;
  EXPECT_EQ(state_hash(read.tensors), ended.state_hash) << "which server 0 has without their tensors";
}

TEST(ProcessesCheckpoints, WhatAWorkerThatIsGoneKeptStays) {
  Recipe recipe = recipe_for_ranks("asgd");
  recipe.comm.compression = "topk", recipe.train.epochs = 1;
  const auto residual = [](const Folder& folder) {
    return step::saved_or_none(newest_good_checkpoint(folder.path()).second.tensors, "ps.worker.1.residual");
  };
  // A worker for which the other has left nothing to do keeps nothing: then the run is made again.
  std::optional<Folder> folder;
  for (int attempt = 0; attempt < 100 && (!folder || !residual(*folder).defined()); ++attempt) {
    folder.emplace();
    train_among_ranks(recipe, {}, {.folder = folder->path()});
  }
  ASSERT_TRUE(residual(*folder).defined());
  const at::Tensor before = residual(*folder).clone();
  recipe.train.epochs = 2;
  train_among_ranks(recipe, {.servers = 1, .workers = 1}, {.folder = folder->path(), .resume = true});
  EXPECT_TRUE(at::equal(residual(*folder), before));
  EXPECT_GT(before.abs().sum().item<double>(), 0);
}

// The file is complete only after later steps: whoever reads the count of steps then finds more of them.
TEST(ProcessesCheckpoints, AreWrittenWhileTrainingGoesOn) {
  Recipe recipe = recipe_for_ranks("asgd");
  recipe.train.checkpoint_every = 5;
  const Folder folder;
  std::vector<std::pair<std::int64_t, std::int64_t>> written;  // step, and the run's when it was complete
  auto note = std::make_unique<On<observe::CheckpointWritten>>(
      [&](const observe::CheckpointWritten& event) { written.emplace_back(event.step, observe::StepCount::read(folder.path())); });
  train_among_ranks(recipe, {}, {.folder = folder.path(), .listener = std::move(note)});
  ASSERT_GT(written.size(), 3u);
  for (const auto& [step, now] : written)
    EXPECT_TRUE(now > step || step % (2 * kStepsPerEpoch) == 0) << step;  // what an epoch ends with may end the run
}

TEST(ProcessesCheckpoints, ThoseForARestartedServerKeepToTheShareToo) {
  const auto count = [](double share) {
    Recipe recipe = recipe_for_ranks("asgd");
    recipe.ps.snapshot_s = 1e-6, recipe.train.checkpoint_share = share;
    const Folder folder;
    std::int64_t written = 0;
    auto note = std::make_unique<On<observe::CheckpointWritten>>([&](const observe::CheckpointWritten&) { ++written; });
    train_among_ranks(recipe, {}, {.folder = folder.path(), .listener = std::move(note), .job = "a job"});
    return written;
  };
  EXPECT_EQ(count(0), 1) << "the one at the end";
  EXPECT_GT(count(1), kEpochs);
}

}  // namespace
}  // namespace paceline::train
