// Checkpoints that several workers write: a shard each and an index, in the background; read by any number of them.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/checkpointer.h"
#include "paceline/train/tensor_file.h"
#include "paceline/train/weights.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWriters = 3;

CheckpointMetadata metadata_at(std::int64_t step) {
  CheckpointMetadata metadata;
  metadata.position.step = step;
  metadata.recipe = "[train]\n", metadata.network = "mlp";
  return metadata;
}

/// The whole state: what all have alike, and a tensor of which each worker has two rows.
std::vector<NamedTensor> whole_state() {
  return {{"model.a", at::arange(6, at::kFloat).reshape({2, 3})},
          {"model.count", at::scalar_tensor(7, at::kLong)},
          {"optim.momentum.a", at::arange(2 * kWriters * 5, at::kFloat).reshape({2 * kWriters, 5})},
          {"workers.statistics", at::arange(kWriters * 4, at::kDouble).reshape({kWriters, 4})}};
}

std::vector<NamedTensor> state_of(int rank) {
  std::vector<NamedTensor> state = whole_state();
  const auto cut = [&](NamedTensor& item, std::int64_t rows) {
    item = step::rows_of(item.name, item.tensor.narrow(0, rank * rows, rows), rank * rows, item.tensor.size(0));
  };
  cut(state[2], 2), cut(state[3], 1);
  return state;
}

void on_workers(const std::filesystem::path& run, const std::function<void(comm::Communicator&, Checkpointer&)>& body, observe::Bus& bus,
                std::int64_t keep = 2) {
  auto group = comm::local_group(kWriters);
  const SteadyClock clock;
  std::vector<std::thread> threads;
  for (auto& comm : group)
    threads.emplace_back([&] {
      Checkpointer checkpointer(*comm, bus, clock, comm->rank() == 0 ? run : std::filesystem::path(), {.keep = keep});
      body(*comm, checkpointer);
    });
  for (std::thread& thread : threads) thread.join();
}

/// Writes one checkpoint for each of `steps`; whether the last one was written.
bool write_steps(const std::filesystem::path& run, const std::vector<std::int64_t>& steps, std::int64_t keep = 2) {
  observe::Bus bus;
  bool good = true;
  on_workers(
      run,
      [&](comm::Communicator& comm, Checkpointer& checkpointer) {
        for (const std::int64_t step : steps) checkpointer.begin(metadata_at(step), state_of(comm.rank()), /*good=*/true);
        const bool written = checkpointer.finish();
        if (comm.rank() == 0) good = written;
      },
      bus, keep);
  return good;
}

TEST(ShardedCheckpoint, EveryWorkerWritesWhatItHoldsAndItIsWhole) {
  const Folder folder;
  ASSERT_TRUE(write_steps(folder.path(), {7}));
  const auto place = checkpoint_folder(folder / "checkpoints", 7);
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(place));
  std::set<std::string> names;
  for (int shard = 0; shard < kWriters; ++shard) {
    const safetensors::File file(place / shard_file(static_cast<std::size_t>(shard), kWriters));
    for (const safetensors::Tensor& tensor : file.tensors()) names.insert(tensor.name);
    EXPECT_NE(file.find(fmt::format("optim.momentum.a[{}:{}]", 2 * shard, 2 * shard + 2)), nullptr);
  }
  EXPECT_EQ(names.size(), 2u + 2 * kWriters);
  const Checkpoint read = read_checkpoint(place);
  EXPECT_EQ(read.position.step, 7);
  for (const NamedTensor& item : whole_state())
    EXPECT_TRUE(at::equal(step::saved_or_none(read.tensors, item.name), item.tensor)) << item.name;
  EXPECT_EQ(state_hash(read.tensors), state_hash(whole_state())) << "the hash does not depend on the number of files";
}

TEST(ShardedCheckpoint, TheHashGoesFromWorkerToWorker) {
  observe::Bus bus;
  on_workers(
      Folder().path(),
      [&](comm::Communicator& comm, Checkpointer&) { EXPECT_EQ(state_hash(state_of(comm.rank()), comm), state_hash(whole_state())); }, bus);
}

TEST(ShardedCheckpoint, DamageAnywhereIsNoticed) {
  const Folder folder;
  ASSERT_TRUE(write_steps(folder.path(), {7}));
  const auto place = checkpoint_folder(folder / "checkpoints", 7);
  for (const auto& item : std::filesystem::directory_iterator(place)) {
    const std::string good = bytes_in(item.path());
    for (std::size_t offset = 0; offset < good.size(); ++offset) {
      std::string bad = good;
      bad[offset] = static_cast<char>(bad[offset] ^ 0x04);
      put_bytes(item.path(), bad);
      EXPECT_THROW(read_checkpoint(place), DataError) << item.path() << " byte " << offset << " of " << good.size();
    }
    put_bytes(item.path(), good.substr(0, good.size() - 1));
    EXPECT_THROW(read_checkpoint(place, Check::structure), DataError) << item.path();
    std::filesystem::remove(item.path());
    if (item.path().filename() != kIndexFile) {
      EXPECT_THROW(read_checkpoint(place, Check::structure), DataError) << item.path();
    }
    put_bytes(item.path(), good);
  }
  EXPECT_NO_THROW(read_checkpoint(place));
}

TEST(ShardedCheckpoint, AShardOfAnotherCheckpointIsNotTaken) {
  const Folder folder;
  ASSERT_TRUE(write_steps(folder.path(), {7}));
  const auto place = checkpoint_folder(folder / "checkpoints", 7);
  const std::vector<NamedTensor> other = {{"model.a", at::zeros({2, 3})}};
  const HostTensors host(other);
  safetensors::write(place / shard_file(1, kWriters), host.views(), pack_shard(host.views(), std::vector<ShardBox>{{"model.a", {0, 0}}}));
  EXPECT_THAT(message_of<DataError>([&] { read_checkpoint(place, Check::structure); }),
              AllOf(HasSubstr(shard_file(1, kWriters)), HasSubstr("another checkpoint")));
}

TEST(ShardedCheckpoint, OneWithoutAnIndexDoesNotCountAndGoes) {
  const Folder folder;
  ASSERT_TRUE(write_steps(folder.path(), {7, 9}));
  const auto place = [&](std::int64_t step) { return checkpoint_folder(folder / "checkpoints", step); };
  std::filesystem::remove(place(9) / kIndexFile);  // as if the writer had been killed before
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(place(7)));
  EXPECT_EQ(newest_good_checkpoint(folder.path()).second.position.step, 7);
  prune_checkpoints(place(7), 2);
  EXPECT_TRUE(std::filesystem::exists(place(9))) << "a later one may be in the making";
  ASSERT_TRUE(write_steps(folder.path(), {11}));
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(place(11), place(7)));
  EXPECT_FALSE(std::filesystem::exists(place(9)));
}

TEST(ShardedCheckpoint, OldOnesArePrunedAndLaterOnesSetAside) {
  const Folder folder;
  ASSERT_TRUE(write_steps(folder.path(), {5, 10, 15, 20}));
  const auto place = [&](std::int64_t step) { return checkpoint_folder(folder / "checkpoints", step); };
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(place(20), place(15)));
  const auto aside = set_aside_behind(15, folder / "checkpoints");
  ASSERT_TRUE(aside.has_value());
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(place(15)));
  EXPECT_EQ(read_checkpoint(checkpoint_folder(*aside, 20)).position.step, 20);
}

TEST(ShardedCheckpoint, APartThatCannotBeWrittenLosesItWithOneAlarm) {
  const Folder folder;
  ASSERT_TRUE(write_steps(folder.path(), {7}));
  put_bytes(checkpoint_folder(folder / "checkpoints", 9), "a file where the folder should be");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(write_steps(folder.path(), {9}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("no checkpoint at step 9"), HasSubstr("worker 0"), HasSubstr("training continues")));
  EXPECT_EQ(log.find("no checkpoint"), log.rfind("no checkpoint")) << "once";
  EXPECT_EQ(newest_good_checkpoint(folder.path()).second.position.step, 7);
}

TEST(ShardedCheckpoint, WhatAllHaveAlikeIsSharedOutWhereItIsLarge) {
  const Folder folder;
  observe::Bus bus;
  std::vector<NamedTensor> state;
  for (int i = 0; i < 8; ++i) state.push_back({fmt::format("model.{}", i), at::full({1 << 19}, i, at::kFloat)});  // 2 MiB each
  on_workers(
      folder.path(),
      [&](comm::Communicator&, Checkpointer& checkpointer) {
        checkpointer.begin(metadata_at(1), std::span(state).first(2), true);  // 4 MiB: one file
        checkpointer.begin(metadata_at(2), state, true);
        EXPECT_TRUE(checkpointer.finish());
      },
      bus);
  const auto checkpoints = folder / "checkpoints";
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(checkpoint_folder(checkpoints, 2), checkpoint_file(checkpoints, 1)));
  for (int shard = 0; shard < kWriters; ++shard) {
    const auto tensors =
        safetensors::File(checkpoint_folder(checkpoints, 2) / shard_file(static_cast<std::size_t>(shard), kWriters)).tensors().size();
    EXPECT_GE(tensors, 2u);
    EXPECT_LE(tensors, 3u);
  }
  EXPECT_EQ(state_hash(read_checkpoint(checkpoint_folder(checkpoints, 2)).tensors), state_hash(state));
}

TEST(ShardedCheckpoint, TheIndexWaitsForTheSlowestWorker) {
  const Folder folder;
  observe::Bus bus;
  testing::internal::CaptureStderr();
  on_workers(
      folder.path(),
      [&](comm::Communicator& comm, Checkpointer& checkpointer) {
        checkpointer.begin(metadata_at(3), state_of(comm.rank()), true);
        if (comm.rank() != 0) return;  // its part is slow beyond measure: it never says that it is there
        while (checkpointer.progress().parts == 0) std::this_thread::yield();
        for (int meeting = 0; meeting < 100; ++meeting) {
          checkpointer.heard({.parts = 1});  // worker 0's own part alone
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      },
      bus);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "no index was tried";
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
}

TEST(ShardedCheckpoint, EveryWriterIsCharged) {
  const Folder folder;
  observe::Bus bus;
  double charged[kWriters] = {};
  on_workers(
      folder.path(),
      [&](comm::Communicator& comm, Checkpointer& checkpointer) {
        std::vector<NamedTensor> state = state_of(comm.rank());
        if (comm.rank() == 1) state.push_back({"model.large", at::zeros({4 << 20})});  // worker 1 writes nearly all
        checkpointer.begin(metadata_at(1), state, true);
        EXPECT_TRUE(checkpointer.finish());
        charged[comm.rank()] = checkpointer.total().writer_s;
      },
      bus);
  EXPECT_GT(charged[1], 0);
  for (int rank = 2; rank < kWriters; ++rank) EXPECT_EQ(charged[rank], charged[1]);
  EXPECT_GT(charged[0], charged[1]) << "worker 0 writes the index, too";
}

TEST(ShardedCheckpoint, WhatIsWrittenIsTheStateAtItsBeginning) {
  const Folder folder;
  observe::Bus bus;
  const SteadyClock clock;
  const auto alone = std::move(comm::local_group(1).front());
  Checkpointer checkpointer(*alone, bus, clock, folder.path(), {});
  const std::vector<NamedTensor> state = {{"model.a", at::zeros({16 << 20})}};
  checkpointer.begin(metadata_at(1), state, true);
  state[0].tensor.narrow(0, (16 << 20) - 8, 8).fill_(1);  // training goes on
  EXPECT_TRUE(checkpointer.finish());
  EXPECT_EQ(newest_good_checkpoint(folder.path()).second.tensors[0].tensor.sum().item<double>(), 0);
}

TEST(ShardedCheckpoint, AnyNumberOfWorkersGoesOnFromIt) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = 4, recipe.strategy.update = "sharded", recipe.optim.name = "adam", recipe.optim.rate = 0.001;
  recipe.comm.algorithm = "direct";
  const Folder whole, parts;
  const observe::RunEnded through = run_in(whole.path(), recipe);
  run_in(parts.path(), recipe, /*resume=*/false, /*stop_after=*/4);
  const auto written = list_checkpoints(parts.path());
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(std::filesystem::is_directory(written.front()));
  for (const std::int64_t workers : {4, 2, 3, 1}) {
    const Folder copy;
    std::filesystem::copy(parts.path(), copy.path(), std::filesystem::copy_options::recursive);
    recipe.parallel.workers = workers, recipe.data.uneven = "weight";
    const observe::RunEnded ended = run_in(copy.path(), recipe, /*resume=*/true);
    EXPECT_EQ(ended.steps, through.steps) << workers;
    EXPECT_NEAR(ended.test_loss, through.test_loss, 1e-4) << workers;
    if (workers == 4) {
      EXPECT_EQ(ended.state_hash, through.state_hash);
      EXPECT_EQ(state_hash(newest_good_checkpoint(copy.path()).second.tensors), through.state_hash);
    }
  }
}

TEST(ShardedCheckpoint, AShardedUpdateEndsInTheStateOfAWholeOne) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = 3, recipe.data.batch = 15, recipe.optim.name = "adamw", recipe.optim.rate = 0.001;
  recipe.comm.algorithm = "direct";
  std::string hash[2];
  for (const bool sharded : {false, true}) {
    recipe.strategy.update = sharded ? "sharded" : "whole";
    const Folder folder;
    hash[sharded] = run_in(folder.path(), recipe).state_hash;
  }
  EXPECT_EQ(hash[0], hash[1]);
}

TEST(Weights, SeveralFilesWithAnIndexGoToAFolderAndComeBack) {
  Recipe recipe = tiny_recipe();
  recipe.train.steps = 1;
  const Folder run, weights;
  Session session(recipe);
  session.to_end(run.path());
  const Checkpoint checkpoint = newest_good_checkpoint(run.path()).second;
  export_weights(checkpoint, weights.path(), /*largest=*/1000);
  EXPECT_FALSE(is_checkpoint_index(bytes_in(weights / kIndexFile)));
  EXPECT_GT(files_of_index("index", bytes_in(weights / kIndexFile)).size(), 1u);
  for (const auto& path : {weights.path(), weights / kIndexFile}) {
    Session other(recipe);
    other.trainer->module().arena().parameters().zero_();
    load_weights(other.trainer->module(), path);
    EXPECT_TRUE(at::equal(other.parameters(), session.parameters()));
  }
  put_bytes(weights / kIndexFile, R"({"metadata": {}, "weight_map": {"fc1.weight": "../x.safetensors"}})");
  EXPECT_THAT(message_of<DataError>([&] { load_weights(session.trainer->module(), weights.path()); }),
              AllOf(HasSubstr(kIndexFile), HasSubstr("../x.safetensors")));
}

TEST(Weights, AShardedCheckpointLoadsAsItIs) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = 2, recipe.strategy.update = "sharded";
  const Folder run;
  run_in(run.path(), recipe);
  const auto [path, checkpoint] = newest_good_checkpoint(run.path());
  ASSERT_TRUE(std::filesystem::is_directory(path));
  recipe.parallel.workers = 1, recipe.strategy.update = "auto";
  Session session(recipe);
  load_weights(session.trainer->module(), path);
  EXPECT_TRUE(at::equal(session.trainer->module().arena().parameter(0), step::saved_or_none(checkpoint.tensors, "model.fc1.weight")));
}

}  // namespace
}  // namespace paceline::train
