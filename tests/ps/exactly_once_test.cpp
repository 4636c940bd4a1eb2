// Every minibatch counts once on every server, however often its push comes, whoever brings it, and whoever was lost in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/base/temporary_folder.h"
#include "tests/ps/replica.h"

namespace paceline::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

using Floats = std::vector<float>;

class ExactlyOnce : public testing::Test {
 protected:
  const TemporaryFolder folder_;
};

TEST(SequenceSet, ContainsWhatWasInserted) {
  RandomStream random(3, Purpose::test, 1);
  SequenceSet numbers;
  std::set<std::int64_t> all;
  for (int i = 0; i < 400; ++i) {
    const auto number = static_cast<std::int64_t>(1 + random.below(300));
    EXPECT_EQ(numbers.insert(number), all.insert(number).second);
    if (i % 100 == 50) {
      numbers.insert_all_below(i / 4);
      for (std::int64_t below = 1; below < i / 4; ++below) all.insert(below);
    }
  }
  std::vector<std::int64_t> saved;
  numbers.save(saved);
  SequenceSet loaded;
  std::span<const std::int64_t> rest(saved);
  loaded.load(rest);
  EXPECT_TRUE(rest.empty());
  for (std::int64_t number = 1; number <= 310; ++number) {
    EXPECT_EQ(numbers.contains(number), all.contains(number)) << number;
    EXPECT_EQ(loaded.contains(number), all.contains(number)) << number;
  }
  for (std::int64_t number = 300; number > 0; --number) numbers.insert(number);
  saved.clear();
  numbers.save(saved);
  EXPECT_THAT(saved, testing::ElementsAre(301, 0)) << "without gaps it is one number";
  rest = std::span(saved).first(1);
  EXPECT_THROW(loaded.load(rest), ConfigError);
}

TEST_F(ExactlyOnce, APushThatComesTwiceIsUsedOnce) {
  Replica server({}, folder_ / "s");
  server.pull(0);
  EXPECT_EQ(server.push(0, 1).fate, Admission::Fate::applied);
  EXPECT_EQ(server.push(0, 1).fate, Admission::Fate::applied) << "it was";
  EXPECT_EQ(server.version(), 1);
  EXPECT_THAT(server.parameters(), Each(-1));
  server.pull(0);
  EXPECT_EQ(server.push(0, 2).fate, Admission::Fate::applied);
  EXPECT_EQ(server.version(), 2);
}

TEST_F(ExactlyOnce, APushThatComesLateToAMinibatchThatWasDealtOutAgainIsNotUsed) {
  for (const std::string consistency : {"asp", "ssp", "bsp"}) {
    Replica server({.rule = consistency == "bsp" ? "average" : "asgd", .consistency = consistency}, folder_ / consistency);
    server.pull(0);
    server.concurrent().leave(0);
    server.pull(1);
    server.push(1, 1);
    server.concurrent().join(0);
    server.push(0, 1, 5);
    EXPECT_EQ(server.gradients(), 1) << consistency;
    if (consistency == "bsp") server.pull(0), server.push(0, 2);
    EXPECT_THAT(server.parameters(), Each(-1)) << consistency;
  }
}

/// Under a barrier a worker that has computed what was here already takes part in the round with its next one.
TEST_F(ExactlyOnce, WhoeverRepeatsMayPullAnew) {
  Replica server({.rule = "average", .consistency = "bsp"}, folder_ / "s");
  for (const int worker : {0, 1}) server.pull(worker);
  server.push(0, 1), server.push(1, 2);
  for (const int worker : {0, 1}) server.pull(worker);
  server.push(0, 2, 9);  // dealt out again, when worker 1 had seemed lost
  EXPECT_TRUE(server.concurrent().may_pull(0));
  server.pull(0);
  server.push(0, 3), server.push(1, 4);
  EXPECT_EQ(server.version(), 2);
  EXPECT_EQ(server.gradients(), 4);
  EXPECT_THAT(server.parameters(), Each(-2));
}

TEST_F(ExactlyOnce, AServerThatWasKilledKnowsWhatItHasUsed) {
  Replica server({}, folder_ / "s");
  server.pull(0), server.pull(1);
  server.push(0, 1);
  server.kill();
  server.concurrent().join(0);
  server.push(0, 1);  // whose answer was lost
  EXPECT_EQ(server.version(), 1);
  server.concurrent().join(1);
  EXPECT_EQ(server.push(1, 2).fate, Admission::Fate::applied) << "it pulled from the server before";
  EXPECT_EQ(server.version(), 2);
  const auto staleness = server.concurrent().with([](Server& there) { return there.staleness(); });
  EXPECT_THAT(staleness, testing::ElementsAre(testing::Pair(0, 1), testing::Pair(1, 1))) << "counted from its pull";
  server.kill();
  server.kill();
  EXPECT_EQ(server.version(), 2);
  server.concurrent().join(1);
  server.push(1, 2), server.push(1, 1);
  EXPECT_EQ(server.version(), 2);
}

TEST_F(ExactlyOnce, ASnapshotKnowsItToo) {
  for (const std::string rule : {"asgd", "easgd", "lc_asgd"}) {
    Replica server({.rule = rule}, folder_ / rule);
    server.pull(0), server.pull(1);
    server.report(1, 2, 3);
    Floats first(kSmall, 1);
    server.push(0, 1, first);
    const auto twin = make_small_server({.rule = rule});
    server.concurrent().with([&](Server& there) {
      std::copy_n(there.parameters(), kSmall, twin->parameters());
      twin->load(there.numbers(), there.rule_state(), Server::InProgress::missing);
      twin->load_ledger(there.ledger());
      ASSERT_EQ(twin->arrays().size(), there.arrays().size()) << rule;
      for (std::size_t i = 0; i < there.arrays().size(); ++i)
        std::copy_n(there.arrays()[i].data, there.arrays()[i].count, twin->arrays()[i].data);
    });
    EXPECT_TRUE(twin->handled(1));
    EXPECT_FALSE(twin->handled(2));
    const Floats statistics(kNorms, 7);
    const double scale = twin->report(1, {.loss = 50, .number = 2}, statistics.data()).scale;
    EXPECT_EQ(scale, server.report(1, 2, 50).scale) << rule;
    EXPECT_EQ(Floats(twin->statistics(), twin->statistics() + kNorms), server.statistics());
    Floats again(kSmall);
    EXPECT_EQ(twin->repeat_answer(0, 1, again.data()), rule == "easgd");
    if (rule == "easgd") {
      EXPECT_EQ(again, first);
    }
  }
}

TEST_F(ExactlyOnce, AReplicaIsAnsweredAsItWas) {
  Replica server({.rule = "easgd"}, folder_ / "s");
  server.pull(0), server.pull(1);
  Floats first(kSmall, 1);
  server.push(0, 1, first);
  EXPECT_LT(first[0], 1);
  server.push(1, 2, 8);  // moves the centre
  const Floats centre = server.parameters();
  for (int kills = 0; kills < 2; ++kills) {
    Floats again(kSmall, 1);
    EXPECT_EQ(server.push(0, 1, again).fate, Admission::Fate::applied);
    EXPECT_EQ(again, first);
    server.kill();
    server.concurrent().join(0);
  }
  EXPECT_EQ(server.parameters(), centre);
  server.concurrent().join(1);
  EXPECT_EQ(server.push(1, 1, 4).fate, Admission::Fate::dropped) << "another worker keeps its own";
}

TEST_F(ExactlyOnce, AReportCountsOnceAndIsAnsweredAsItWas) {
  Replica server({.rule = "lc_asgd"}, folder_ / "s");
  for (std::int64_t number = 1; number < 6; ++number) {
    const int worker = static_cast<int>(number % 2);
    server.pull(worker);
    server.report(worker, number, 10.0 / static_cast<double>(number));
    server.push(worker, number);
  }
  server.pull(0);
  const double scale = server.report(0, 6, 1).scale;
  const Floats statistics = server.statistics();
  EXPECT_EQ(server.report(0, 6, 1).scale, scale);
  server.kill();
  server.concurrent().join(0), server.concurrent().join(1);
  EXPECT_EQ(server.report(0, 6, 1).scale, scale);
  EXPECT_EQ(server.report(1, 6, 2).scale, scale) << "whoever computes it now";
  EXPECT_EQ(server.statistics(), statistics);
  const auto predictors = [&] { return server.concurrent().with([](Server& there) { return there.rule_state(); }); };
  const auto before = predictors();
  server.push(0, 6);
  server.report(1, 6, 3);  // it is pushed already
  EXPECT_EQ(server.statistics(), statistics);
  EXPECT_EQ(predictors(), before);
}

TEST_F(ExactlyOnce, ARefusalCountsOnce) {
  Replica server({}, folder_ / "s");
  server.pull(0);
  server.push(0, 1, std::numeric_limits<float>::quiet_NaN());
  server.push(0, 1, std::numeric_limits<float>::quiet_NaN());
  server.kill();
  server.concurrent().refuse(0, {.number = 1});
  const auto refused = server.concurrent().with([](Server& there) { return there.refused(); });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(server.version(), 0);
}

/// What a consistency would have cancelled is not used because its server was lost in between.
TEST_F(ExactlyOnce, WhatIsCancelledStaysCancelled) {
  Replica server({.rule = "average", .consistency = "k_sync"}, folder_ / "s");
  server.pull(0), server.pull(1);
  server.push(0, 1);
  server.kill();
  server.concurrent().join(1);
  EXPECT_EQ(server.push(1, 2).fate, Admission::Fate::dropped);
  server.pull(1);
  server.kill();
  server.concurrent().join(1);
  EXPECT_EQ(server.push(1, 3).fate, Admission::Fate::applied) << "of the present version";
  EXPECT_EQ(server.version(), 2);
}

TEST_F(ExactlyOnce, AMinibatchThatIsDoneIsSettledWithoutAPush) {
  Replica server({}, folder_ / "s");
  server.pull(0), server.pull(1);
  server.concurrent().complete(0, {.number = 1, .loss = 3, .right = 2, .targets = 1});
  auto twin = make_small_server({});
  std::vector<double> sums;
  Journals(folder_ / "s").replay(*twin, 0, [&](Journal::Kind, int, const Completed& told) {
    sums = {told.loss, told.right, static_cast<double>(told.targets), static_cast<double>(told.number)};
  });
  EXPECT_THAT(sums, testing::ElementsAre(3, 2, 1, 1));
  EXPECT_TRUE(twin->handled(1));
  server.push(1, 1);
  EXPECT_EQ(server.version(), 0);
  Floats gradient(kSmall, 1);
  server.concurrent().push(0, gradient.data(), {.rate = 1, .number = 9, .complete_below = 8});
  server.pull(1);
  server.push(1, 7);
  EXPECT_EQ(server.version(), 1) << "all below 8 are done, as the other one said";
}

TEST_F(ExactlyOnce, AJournalOfTheFirstFormatIsRefused) {
  const auto file = folder_ / "s.journal-0";
  std::ofstream(file) << std::string("\x09\0\0\0\0\0\0\0", 8) << std::string(80, '\0');  // it began with "follows"
  try {
    Journals(folder_ / "s").replay(*make_small_server({}), 0);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("s.journal-0"));
    EXPECT_THAT(error.what(), HasSubstr("format 2"));
  }
}

}  // namespace
}  // namespace paceline::ps
