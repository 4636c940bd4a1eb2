// Snapshots of a server that does not lead: when one is written, and with what the server goes on that is started again.
#include "paceline/central/server_snapshots.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "paceline/base/error.h"
#include "tests/central/lost_servers.h"
#include "tests/message_of.h"

namespace paceline::central {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A server that is started twice, with its snapshots in memory.
class ServerSnapshotsTest : public testing::Test {
 protected:
  ServerSnapshotsTest() : folder_(lost_.make_folder()), file_(folder_ / "server-1.safetensors") {}

  ServerSnapshots begin(ps::ConcurrentServer& server, const std::vector<step::NamedTensor>* checkpoint = nullptr) {
    const auto saved = checkpoint ? std::optional(SavedServer(*checkpoint, server_prefix(1))) : std::nullopt;
    return {lost_.settings, server, lost_.clock, files(), saved ? &*saved : nullptr};
  }
  ServerSnapshots begin_again(ps::ConcurrentServer& server, const std::vector<step::NamedTensor>* checkpoint = nullptr) {
    lost_.settings.cluster.restarts = 1;
    return begin(server, checkpoint);
  }
  ServerSnapshots::Files files() {
    return {.write =
                [this](const std::filesystem::path& file, const std::vector<step::NamedTensor>& tensors) {
                  if (full_) throw Error("no space left on device");
                  ++writes_;
                  written_[file] = tensors;
                  std::ofstream(file) << "a snapshot";
                },
            .read = [this](const std::filesystem::path& file) { return written_.at(file); }};
  }
  /// The states of both servers of a checkpoint; the parameters are in the model's part.
  std::vector<step::NamedTensor> checkpoint_of(ps::ConcurrentServer& server) const {
    std::vector<step::NamedTensor> state;
    for (const std::size_t i : {0, 1})
      for (auto& item : server.with([&](ps::Server& own) { return ServerTensors(own, at::kCPU).save(server_prefix(i)); }))
        state.push_back(std::move(item));
    return state;
  }
  /// Its snapshot is behind an update of 1; one of 2 followed.
  void serve_until_lost() {
    const auto server = lost_.make_server();
    ServerSnapshots snapshots = begin(*server);
    server->join(0);
    visit(*server, 1);
    lost_.clock.advance(60s);
    snapshots.write_if_due();
    visit(*server, 2);
  }
  static std::int64_t version(ps::ConcurrentServer& server) {
    return server.with([](ps::Server& own) { return own.version(); });
  }

  LostServer lost_;
  std::filesystem::path folder_, file_;
  std::map<std::filesystem::path, std::vector<step::NamedTensor>> written_;
  int writes_ = 0;
  bool full_ = false;  // the disk
};

TEST_F(ServerSnapshotsTest, ARestartedServerContinuesFromTheLast) {
  serve_until_lost();
  const auto server = lost_.make_server();
  const ServerSnapshots again = begin_again(*server);
  EXPECT_TRUE(all_are(*server, -1)) << parameters_of(*server);
  EXPECT_EQ(version(*server), 1);
}

TEST_F(ServerSnapshotsTest, WithAJournalNothingIsLost) {
  lost_.settings.ps.replica = true;
  serve_until_lost();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "server-1.journal-0")) << "the snapshot has it";
  const auto server = lost_.make_server();
  const ServerSnapshots again = begin_again(*server);
  EXPECT_TRUE(all_are(*server, -3)) << parameters_of(*server);
}

TEST_F(ServerSnapshotsTest, OneThatWasLostBeforeTheFirstStartsOver) {
  const auto server = lost_.make_server();
  const ServerSnapshots again = begin_again(*server);
  EXPECT_TRUE(all_are(*server, 0));
}

TEST_F(ServerSnapshotsTest, NoneIsWrittenBeforeItIsDueOrWhileNothingHasChanged) {
  const auto server = lost_.make_server();
  ServerSnapshots snapshots = begin(*server);
  const auto writes_after = [&](Nanoseconds time) {
    lost_.clock.advance(time);
    snapshots.write_if_due();
    return writes_;
  };
  EXPECT_EQ(writes_after(60s), 0) << "it has made no update";
  server->join(0);
  visit(*server, 1);
  EXPECT_EQ(writes_after(59s), 0);
  EXPECT_EQ(writes_after(1s), 1);
  EXPECT_EQ(writes_after(60s), 1);
  visit(*server, 1);
  EXPECT_EQ(writes_after(30s), 1);
  EXPECT_EQ(writes_after(30s), 2);
}

TEST_F(ServerSnapshotsTest, AFullDiskKeepsTheLastOneAndItsJournal) {
  lost_.settings.ps.replica = true;
  const auto first = lost_.make_server(), second = lost_.make_server();
  ServerSnapshots snapshots = begin(*first);
  first->join(0);
  const auto later = [&] {
    lost_.clock.advance(60s);
    snapshots.write_if_due();
  };
  visit(*first, 1);
  later();
  visit(*first, 2);
  full_ = true;
  later();
  visit(*first, 4);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "server-1.journal-1")) << "the snapshot that there is needs it";
  {
    const ServerSnapshots again = begin_again(*second);
    EXPECT_TRUE(all_are(*second, -7)) << parameters_of(*second);
  }
  full_ = false;
  later();
  EXPECT_EQ(writes_, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "server-1.journal-1"));
}

TEST_F(ServerSnapshotsTest, AResumedRunHasOneBeforeAnybodyIsServed) {
  const auto before = lost_.make_server(), server = lost_.make_server(), lost = lost_.make_server();
  before->join(0);
  visit(*before, 1), visit(*before, 2);
  const auto checkpoint = checkpoint_of(*before);
  for (const auto& its : {server, lost})
    its->with([&](ps::Server& own) { ServerTensors(own, at::kCPU).parameters().copy_(parameters_of(*before)); });
  const ServerSnapshots snapshots = begin(*server, &checkpoint);
  EXPECT_EQ(writes_, 1);
  EXPECT_EQ(version(*server), 2);

  server->join(0);
  visit(*server, 4);
  lost->with([](ps::Server& own) { ServerTensors(own, at::kCPU).parameters().fill_(17); });
  const ServerSnapshots again = begin_again(*lost, &checkpoint);
  EXPECT_TRUE(all_are(*lost, -3)) << "its own snapshot, not what a checkpoint of the run has";
  EXPECT_EQ(writes_, 1);
}

TEST_F(ServerSnapshotsTest, WhereNoServerIsStartedAgainAResumedRunNeedsNone) {
  lost_.settings.cluster.max_restarts = 0;
  const auto before = lost_.make_server(), server = lost_.make_server();
  const auto checkpoint = checkpoint_of(*before);
  const ServerSnapshots snapshots = begin(*server, &checkpoint);
  EXPECT_EQ(writes_, 0);
}

TEST_F(ServerSnapshotsTest, OneThatWasLostBeforeItsFirstResumesFromTheCheckpoint) {
  const auto before = lost_.make_server(), server = lost_.make_server();
  before->join(0);
  visit(*before, 1);
  const auto checkpoint = checkpoint_of(*before);
  const ServerSnapshots snapshots = begin_again(*server, &checkpoint);
  EXPECT_EQ(version(*server), 1);
  EXPECT_EQ(writes_, 1) << "it may be lost once more";
}

TEST_F(ServerSnapshotsTest, ARestartWithoutSnapshotsIsRefused) {
  lost_.settings.ps.snapshot_s = 0;
  const auto server = lost_.make_server();
  EXPECT_THAT(message_of<Error>([&] { begin_again(*server); }), HasSubstr("ps.snapshot_s=0"));
}

TEST_F(ServerSnapshotsTest, OneOfAnotherModelIsRefused) {
  const auto first = lost_.make_server(), wider = lost_.make_server(kServed + 1);
  ServerSnapshots snapshots = begin(*first);
  first->join(0);
  visit(*first, 1);
  lost_.clock.advance(60s);
  snapshots.write_if_due();
  EXPECT_THAT(message_of<ConfigError>([&] { begin_again(*wider); }), HasSubstr(file_.string()));
}

}  // namespace
}  // namespace paceline::central
