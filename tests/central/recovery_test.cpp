// What a lost server finds when it is started again, and which journals are kept for that.
#include "paceline/central/recovery.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "tests/central/hasty_clock.h"
#include "tests/central/lost_servers.h"
#include "tests/message_of.h"

namespace paceline::central {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr const char* kIts = "ps.";  // prefix

/// A server's state and parameters, and the number of the journal that follows.
std::vector<step::NamedTensor> snapshot_of(ps::ConcurrentServer& server, Recovery& recovery) {
  return server.with([&](ps::Server& own) {
    const ServerTensors tensors(own, at::kCPU);
    std::vector<step::NamedTensor> snapshot = tensors.save(kIts);
    snapshot.push_back({"parameters", tensors.parameters().clone()});
    recovery.snapshot_taken(snapshot, kIts);
    return snapshot;
  });
}

void restore(ps::ConcurrentServer& server, const std::vector<step::NamedTensor>& snapshot) {
  server.with([&](ps::Server& own) {
    const ServerTensors tensors(own, at::kCPU);
    tensors.load({snapshot, kIts});
    tensors.parameters().copy_(step::find_saved(snapshot, "parameters"));
  });
}

TEST(Recovery, ReplaysWhatFollowsTheSnapshotAndNothingElse) {
  LostServer lost;
  lost.settings.ps.replica = true;
  lost.make_folder();
  const auto first = lost.make_server(), second = lost.make_server(), third = lost.make_server();
  Recovery before(lost.settings, *first, lost.clock, {});
  first->join(0);
  visit(*first, 1);
  const auto snapshot = snapshot_of(*first, before);
  visit(*first, 2), visit(*first, 4);

  const std::int64_t journal = journal_after(lost.settings, snapshot, kIts);
  restore(*second, snapshot);
  Recovery again(lost.settings, *second, lost.clock, {.state = Beginning::State::restarted, .journal = journal});
  EXPECT_TRUE(all_are(*second, -7)) << parameters_of(*second);
  EXPECT_EQ(second->with([](ps::Server& own) { return own.version(); }), 3);

  // What it does from then on is written too, behind what was replayed.
  EXPECT_TRUE(second->is_expected(0)) << "it was connected when the server was lost";
  second->join(0);
  visit(*second, 8);
  restore(*third, snapshot);
  const Recovery once_more(lost.settings, *third, lost.clock, {.state = Beginning::State::restarted, .journal = journal});
  EXPECT_TRUE(all_are(*third, -15)) << parameters_of(*third);
}

TEST(Recovery, TheCheckpointBeforeTheLastKeepsItsJournals) {
  LostServer lost;
  lost.settings.ps.replica = true;
  const auto folder = lost.make_folder();
  const auto server = lost.make_server();
  Recovery recovery(lost.settings, *server, lost.clock, {});
  const auto journals = [&] {
    std::vector<int> numbers;
    for (int number = 0; number < 6; ++number)
      if (std::filesystem::exists(folder / ("server-1.journal-" + std::to_string(number)))) numbers.push_back(number);
    return numbers;
  };
  const std::vector<std::vector<int>> kept = {{0, 1}, {1, 2}, {2, 3}};
  for (const auto& expected : kept) {
    snapshot_of(*server, recovery);
    recovery.checkpoint_complete();
    EXPECT_EQ(journals(), expected);
  }
  snapshot_of(*server, recovery), snapshot_of(*server, recovery);  // the first of them never became a checkpoint
  recovery.checkpoint_complete();
  EXPECT_EQ(journals(), (std::vector{3, 4, 5}));
}

TEST(Recovery, ARunThatResumesCountsItsJournalsFromTheCheckpointsOn) {
  LostServer lost;
  lost.settings.ps.replica = true;
  const auto folder = lost.make_folder();
  const auto server = lost.make_server();
  const Recovery recovery(lost.settings, *server, lost.clock, {.state = Beginning::State::checkpoint, .journal = 4});
  EXPECT_TRUE(std::filesystem::exists(folder / "server-1.journal-4"));
}

TEST(Recovery, ASnapshotIsDueWhenItsTimeHasPassed) {
  LostServer lost;
  lost.settings.ps.snapshot_s = 60;
  const auto server = lost.make_server();
  Recovery recovery(lost.settings, *server, lost.clock, {});
  const auto due_after = [&](Nanoseconds time) {
    lost.clock.advance(time);
    return recovery.snapshot_due();
  };
  EXPECT_FALSE(due_after(59s));
  EXPECT_TRUE(due_after(1s));
  snapshot_of(*server, recovery);
  EXPECT_FALSE(due_after(59s));
  EXPECT_TRUE(due_after(1s));
  recovery.postpone_snapshot();
  EXPECT_FALSE(due_after(59s));
  EXPECT_TRUE(due_after(1s));
  lost.settings.ps.snapshot_s = 0;
  EXPECT_FALSE(due_after(1h));
  lost.settings.ps.snapshot_s = 60, lost.settings.cluster.job.clear();
  EXPECT_FALSE(due_after(1h)) << "nobody would start the server again";
}

/// Whether a server that begins so keeps the place of a worker that was connected before.
bool keeps_places(const Settings& settings, const LostServer& lost, const Beginning& from) {
  const auto server = lost.make_server();
  server->join(0);
  const Recovery recovery(settings, *server, lost.clock, from);
  return server->is_expected(0);
}

TEST(Recovery, OnlyAServerThatKnowsTheRoundWaitsForItsWorkers) {
  LostServer lost("bsp");
  lost.make_folder();
  const Beginning restarted{.state = Beginning::State::restarted};
  EXPECT_FALSE(keeps_places(lost.settings, lost, {}));
  EXPECT_TRUE(keeps_places(lost.settings, lost, {.state = Beginning::State::checkpoint}));
  EXPECT_FALSE(keeps_places(lost.settings, lost, restarted)) << "the other server went on without it";
  Settings alone = lost.settings;
  alone.cluster.servers = {"here:1"};
  EXPECT_TRUE(keeps_places(alone, lost, restarted));
  Settings replica = lost.settings;
  replica.ps.replica = true;
  EXPECT_TRUE(keeps_places(replica, lost, restarted));
}

TEST(ServerFiles, AreInTheFolderOfTheJob) {
  const LostServer lost;
  const HastyClock clock;
  const ServerFiles files(lost.settings, clock);
  EXPECT_EQ(files.find_stem(), std::nullopt);
  EXPECT_THAT(message_of<ConfigError>([&] { files.await_stem(); }), HasSubstr(lost.runs.path().string()));
  observe::RunFolder::create(lost.runs.path(), "another").mark("job-2");
  EXPECT_EQ(files.find_stem(), std::nullopt);
  const auto folder = lost.make_folder();
  EXPECT_EQ(files.find_stem(), folder / "server-1");
  EXPECT_EQ(files.await_stem(), folder / "server-1");
}

TEST(ServerFiles, AreOfUseWhereALauncherStartsAServerAgain) {
  LostServer lost;
  const ServerFiles files(lost.settings, lost.clock);
  EXPECT_TRUE(files.restartable());
  lost.settings.cluster.max_restarts = 0;
  EXPECT_FALSE(files.restartable());
  lost.settings.cluster.max_restarts = 1, lost.settings.ps.snapshot_s = 0;
  EXPECT_FALSE(files.restartable());
  lost.settings.ps.snapshot_s = 60, lost.settings.cluster.job.clear();
  EXPECT_FALSE(files.restartable());
}

TEST(Recovery, JournalsNeedALauncher) {
  LostServer lost;
  lost.settings.ps.replica = true, lost.settings.cluster.job.clear();
  const auto server = lost.make_server();
  EXPECT_THAT(message_of<ConfigError>([&] { Recovery(lost.settings, *server, lost.clock, {}); }), HasSubstr("ps.replica"));
}

}  // namespace
}  // namespace paceline::central
