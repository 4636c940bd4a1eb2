// What a server's journal keeps: the server again, to the bit, up to the last event that was written to its end.
#include "paceline/ps/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/ps/concurrent_server.h"
#include "tests/ps/clocks.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kLength = 301, kStatistics = 6;
constexpr int kWorkers = 3;

class JournalTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
};

std::unique_ptr<Server> make_server(const std::string& rule, const std::string& consistency) {
  PsConfig config;
  config.rule = rule, config.consistency = consistency, config.bound = 2;
  config.hidden = 4;
  Server::Setup setup;
  setup.segments = {{0, 100}, {100, kLength - 100, false}};
  setup.length = setup.end = kLength, setup.statistics = kStatistics, setup.workers = kWorkers, setup.seed = 3;
  auto server = std::make_unique<Server>(config, optim::OptimConfig{.momentum = 0.9}, setup);
  for (std::int64_t i = 0; i < kLength; ++i) server->parameters()[i] = static_cast<float>(i % 13) - 6;
  return server;
}

std::vector<float> state_of(Server& server) {
  std::vector<float> all(server.parameters(), server.parameters() + server.length());
  for (const Server::Array& array : server.arrays()) all.insert(all.end(), array.data, array.data + array.count);
  for (const std::int64_t number : server.numbers()) all.push_back(static_cast<float>(number));
  for (const UpdateRule::State& row : server.rule_state()) all.insert(all.end(), row.values.begin(), row.values.end());
  return all;
}

/// Workers in some order: those that may pull do, report and push; now and then one goes and comes, wants no parameters, or pushes what is
/// no number.
void disturb(ConcurrentServer& concurrent, int events, std::uint64_t seed) {
  RandomStream random(seed, Purpose::test, 7);
  std::vector<float> values(kLength), statistics(kStatistics);
  for (int event = 0; event < events; ++event) {
    const int worker = static_cast<int>(random.below(kWorkers));
    if (event % 11 == 10) {
      concurrent.leave(worker);
      concurrent.join(worker);
    }
    if (!concurrent.may_pull(worker)) continue;
    concurrent.pull(worker, event % 5 == 4 ? nullptr : values.data(), 0.125f);
    for (float& value : statistics) value = static_cast<float>(random.uniform());
    const double scale = concurrent.report(worker, {.loss = 1 + random.uniform(), .t_comm_s = 1, .t_comp_s = 2}, statistics.data()).scale;
    for (float& value : values) value = static_cast<float>(random.uniform()) - 0.5f;
    if (event % 7 == 6) values[3] = std::numeric_limits<float>::quiet_NaN();
    concurrent.push(worker, values.data(), {.rate = 0.125f, .scale = static_cast<float>(scale), .loss = 1});
  }
}

TEST_F(JournalTest, PlaysAServerAgainToTheBit) {
  const std::pair<std::string, std::string> kinds[] = {{"asgd", "asp"},  {"dc_asgd", "asp"}, {"gap_aware", "ssp"}, {"lc_asgd", "asp"},
                                                       {"easgd", "asp"}, {"dana", "asp"},    {"average", "bsp"},   {"average", "k_async"}};
  for (const auto& [rule, consistency] : kinds) {
    ConcurrentServer concurrent(make_server(rule, consistency), {.wait = std::chrono::milliseconds(50)}, steady_clock());
    concurrent.write_to(std::make_unique<Journal>(folder_ / "one"));
    for (int worker = 0; worker < kWorkers; ++worker) concurrent.join(worker);
    disturb(concurrent, 60, 1);
    concurrent.write_to(nullptr);
    const auto twin = make_server(rule, consistency);
    const auto before = state_of(*twin);
    EXPECT_GT(Journal::replay(folder_ / "one", *twin).pushes, 20) << rule;
    EXPECT_NE(state_of(*twin), before);
    EXPECT_TRUE(concurrent.with([&](Server& server) { return state_of(server) == state_of(*twin); })) << rule << " " << consistency;
  }
}

TEST_F(JournalTest, WaitsInMemoryUntilItsPlaceIsKnown) {
  std::optional<std::filesystem::path> stem;
  Journals journals([&] { return stem; });
  journals.begin_with(3);
  ConcurrentServer concurrent(make_server("asgd", "asp"), {}, steady_clock());
  concurrent.write_to(journals.next());
  for (int worker = 0; worker < kWorkers; ++worker) concurrent.join(worker);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "server-1.journal-3"));
  stem = folder_ / "server-1";
  concurrent.leave(1);
  disturb(concurrent, 20, 1);
  concurrent.write_to(nullptr);
  const auto twin = make_server("asgd", "asp");
  EXPECT_GT(Journals(folder_ / "server-1").replay(*twin, 3), 5);
  EXPECT_TRUE(concurrent.with([&](Server& server) { return state_of(server) == state_of(*twin); }));
}

TEST_F(JournalTest, GoesOnFromASnapshotThroughSeveralFiles) {
  Journals journals(folder_ / "server-1");
  ConcurrentServer concurrent(make_server("asgd", "asp"), {}, steady_clock());
  concurrent.write_to(journals.next());
  for (int worker = 0; worker < kWorkers; ++worker) concurrent.join(worker);
  disturb(concurrent, 20, 1);
  const auto snapshot = make_server("asgd", "asp");
  concurrent.with([&](Server& server) {
    std::copy_n(server.parameters(), kLength, snapshot->parameters());
    snapshot->load(server.numbers(), {}, Server::InProgress::missing);
    for (std::size_t i = 0; i < server.arrays().size(); ++i)
      std::copy_n(server.arrays()[i].data, server.arrays()[i].count, snapshot->arrays()[i].data);
    concurrent.write_to(journals.next());
  });
  const std::int64_t from = journals.number();
  disturb(concurrent, 20, 2);
  concurrent.write_to(journals.next());  // as a server does that is started again
  concurrent.begin_again();
  concurrent.join(1);
  disturb(concurrent, 20, 3);
  concurrent.write_to(nullptr);
  journals.forget_before(from);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "server-1.journal-0"));
  Journals again(folder_ / "server-1");
  EXPECT_GT(again.replay(*snapshot, from), 5);
  EXPECT_EQ(again.number(), 2);
  EXPECT_TRUE(concurrent.with([&](Server& server) { return state_of(server) == state_of(*snapshot); }));
}

TEST_F(JournalTest, EndsBeforeAnEventThatIsNotWhole) {
  ConcurrentServer concurrent(make_server("asgd", "asp"), {}, steady_clock());
  concurrent.write_to(std::make_unique<Journal>(folder_ / "one"));
  concurrent.join(0);
  disturb(concurrent, 30, 1);
  concurrent.write_to(nullptr);
  const std::int64_t whole = Journal::replay(folder_ / "one", *make_server("asgd", "asp")).pushes;
  const auto size = std::filesystem::file_size(folder_ / "one");
  std::filesystem::resize_file(folder_ / "one", size - 5);  // the last event is a push
  EXPECT_EQ(Journal::replay(folder_ / "one", *make_server("asgd", "asp")).pushes, whole - 1);
  std::fstream file(folder_ / "one", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size / 2));
  file.put('\x5a');
  file.close();
  EXPECT_LT(Journal::replay(folder_ / "one", *make_server("asgd", "asp")).pushes, whole - 1);
}

TEST_F(JournalTest, EndsBeforeAnEventOfWhichAnyByteIsDamaged) {
  ConcurrentServer concurrent(make_server("asgd", "asp"), {}, steady_clock());
  concurrent.write_to(std::make_unique<Journal>(folder_ / "one"));
  concurrent.join(0);
  disturb(concurrent, 5, 1);
  concurrent.write_to(nullptr);
  const std::int64_t whole = Journal::replay(folder_ / "one", *make_server("asgd", "asp")).pushes;
  ASSERT_GT(whole, 1);
  // The last event is a push: what is known of it (kind, worker, rate, loss, numbers, length, checksum), and then its values.
  constexpr std::int64_t kValues = kLength * 4, kRecord = 4 * 8 + sizeof(Push) + sizeof(Report);
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(folder_ / "one"));
  std::fstream file(folder_ / "one", std::ios::in | std::ios::out | std::ios::binary);
  for (std::int64_t place = size - kValues - kRecord; place < size; place += place < size - kValues + 8 ? 1 : 97) {
    const auto flip = [&] {
      file.seekg(place);
      const int byte = file.get();
      file.seekp(place);
      file.put(static_cast<char>(byte ^ 0x10)).flush();
    };
    flip();
    EXPECT_EQ(Journal::replay(folder_ / "one", *make_server("asgd", "asp")).pushes, whole - 1) << "byte " << place - size;
    flip();
  }
  EXPECT_EQ(Journal::replay(folder_ / "one", *make_server("asgd", "asp")).pushes, whole);
}

TEST_F(JournalTest, RefusesEventsThatCannotHaveHappened) {
  using Kind = Journal::Kind;
  const std::vector<float> one(1), gradient(kLength);
  const auto refusal = [&](const std::function<void(Journal&)>& write) -> std::string {
    {
      Journal journal(folder_ / "one");
      journal.note(Kind::joined, 0);
      write(journal);
    }
    try {
      Journal::replay(folder_ / "one", *make_server("asgd", "asp"));
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  for (const std::int64_t worker : {std::int64_t{-1}, std::int64_t{1} << 20, std::int64_t{1} << 40})
    EXPECT_THAT(refusal([&](Journal& journal) { journal.note(Kind::joined, worker); }), testing::HasSubstr(std::to_string(worker)));
  EXPECT_THAT(refusal([](Journal& journal) { journal.note(static_cast<Kind>(99), 0); }), testing::HasSubstr("99"));
  EXPECT_THAT(refusal([&](Journal& journal) { journal.note(Kind::reported, 0, {}, {}, one); }), testing::HasSubstr("statistics"));
  EXPECT_THAT(refusal([](Journal& journal) { journal.note(Kind::pulled, 0), journal.note(Kind::pulled, 0); }),
              testing::HasSubstr("event 3"));
  EXPECT_EQ(refusal([&](Journal& journal) { journal.note(Kind::pulled, 0), journal.note(Kind::pushed, 0, {}, {}, gradient); }), "");
}

/// A server whose process ends in the middle of a push, and is started again, twice: what was not written to its end never happened.
TEST_F(JournalTest, GoesOnAfterAnEventThatWasCutWithItsProcess) {
  {
    Journals journals(folder_ / "server-1");
    ConcurrentServer concurrent(make_server("asgd", "asp"), {}, steady_clock());
    concurrent.write_to(journals.next());
    concurrent.join(0);
    disturb(concurrent, 20, 1);
  }
  std::filesystem::resize_file(folder_ / "server-1.journal-0", std::filesystem::file_size(folder_ / "server-1.journal-0") - 5);
  auto server = make_server("asgd", "asp");
  Journals journals(folder_ / "server-1");
  EXPECT_GT(journals.replay(*server, 0), 5);
  ConcurrentServer concurrent(std::move(server), {}, steady_clock());
  concurrent.write_to(journals.next());
  concurrent.begin_again();
  concurrent.join(1);
  disturb(concurrent, 20, 2);
  std::ofstream(folder_ / "server-1.journal-2") << "PLX";  // and again, while it began a journal
  const auto twin = make_server("asgd", "asp");
  Journals again(folder_ / "server-1");
  EXPECT_GT(again.replay(*twin, 0), 10);
  EXPECT_TRUE(concurrent.with([&](Server& there) { return state_of(there) == state_of(*twin); }));
  again.next();
  EXPECT_EQ(again.number(), 2) << "the one without a beginning makes room";
}

/// The disk is full; the server lives on, and its next snapshot fails as well, so that a journal follows one that has not everything.
TEST_F(JournalTest, WhatFollowsAFullDiskIsRefused) {
  Journals journals(folder_ / "server-1");
  ConcurrentServer concurrent(make_server("asgd", "asp"), {}, steady_clock());
  concurrent.write_to(journals.next());
  concurrent.join(0);
  disturb(concurrent, 10, 1);
  const auto written = std::filesystem::file_size(folder_ / "server-1.journal-0");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{written + 700, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  disturb(concurrent, 10, 2);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::filesystem::file_size(folder_ / "server-1.journal-0"), written + 700);
  concurrent.write_to(journals.next());
  disturb(concurrent, 10, 3);
  for (const auto kept : {written + 700, written}) {  // cut in the middle of an event, or between two
    std::filesystem::resize_file(folder_ / "server-1.journal-0", kept);
    try {
      Journals(folder_ / "server-1").replay(*make_server("asgd", "asp"), 0);
      FAIL() << "events are missing between the two";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("journal-1: it follows a journal of"));
    }
  }
  EXPECT_NO_THROW(Journals(folder_ / "server-1").replay(*make_server("asgd", "asp"), 1)) << "from the snapshot that begins with it";
}

}  // namespace
}  // namespace paceline::ps
