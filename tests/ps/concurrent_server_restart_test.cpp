// Servers that begin again with the state of one that was lost, and workers that are lost and started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ps/admissions.h"
#include "tests/ps/small_concurrent.h"

namespace paceline::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A server in the state of another that was lost, as the only one of its run begins again.
std::unique_ptr<ConcurrentServer> begun_again(ConcurrentServer& lost, const PsConfig& config, int workers, std::int64_t length,
                                              const ConcurrentServer::Limits& limits = {}, const Clock& clock = steady_clock()) {
  auto server = make_server(config, workers, length);
  lost.with([&](Server& before) {
    server->load(before.numbers(), {}, Server::InProgress::present);
    std::copy_n(before.parameters(), length, server->parameters());
    for (std::size_t i = 0; i < before.arrays().size(); ++i)
      std::copy_n(before.arrays()[i].data, before.arrays()[i].count, server->arrays()[i].data);
  });
  auto concurrent = std::make_unique<ConcurrentServer>(std::move(server), limits, clock);
  concurrent->begin_again(/*knows_round=*/true);
  return concurrent;
}

TEST(ConcurrentServer, TheOnlyServerBeginsAgainInTheMiddleOfItsRound) {
  const auto lost = make_concurrent(with("bsp"), 2, 6);
  Floats one(6, 1), two(6, 2);
  EXPECT_EQ(outcome_of_pull(*lost, 0), "");
  EXPECT_EQ(outcome_of_pull(*lost, 1), "");
  EXPECT_EQ(lost->push(0, one.data(), {.rate = 1}), gathered(1));

  const auto concurrent = begun_again(*lost, with("bsp"), 2, 6);
  concurrent->join(0);
  EXPECT_FALSE(concurrent->may_begin(0, true)) << "it has contributed to this round";
  concurrent->join(1);
  EXPECT_EQ(outcome_of_pull(*concurrent, 1), "") << "what it computed is lost, and it computes anew";
  EXPECT_EQ(concurrent->push(1, two.data(), {.rate = 1}), applied(2));
  EXPECT_EQ(parameters_of(*concurrent), Floats(6, -1.5f));
}

/// Computed on what the lost server had, it must not pass for the minibatch of that number when it is assigned again.
TEST(ConcurrentServer, WhatWasPulledFromALostServerCountsForNothing) {
  const auto lost = make_concurrent(with("asp"), 2, 6);
  const auto concurrent = begun_again(*lost, with("asp"), 2, 6);
  Floats one(6, 1), two(6, 2);
  concurrent->join(0);
  EXPECT_EQ(concurrent->push(0, two.data(), {.rate = 1, .number = 9, .complete_below = 9}), kDropped);
  for (const std::int64_t number : {8, 9}) {
    EXPECT_EQ(outcome_of_pull(*concurrent, 0), "");
    EXPECT_EQ(concurrent->push(0, one.data(), {.rate = 1, .number = number}), applied(1));
  }
  EXPECT_EQ(parameters_of(*concurrent), Floats(6, -2));
}

/// A worker may repeat a pull that the lost server did not answer, and compute the minibatch which that one had assigned.
TEST(ConcurrentServer, AMinibatchThatALostServerAssignedCountsForNothing) {
  const auto lost = make_concurrent(with("bsp"), 2, 6);
  const auto concurrent = begun_again(*lost, with("bsp"), 2, 6);
  concurrent->assigns();
  Floats one(6, 1), two(6, 2);
  concurrent->join(0), concurrent->join(1);
  EXPECT_EQ(outcome_of_pull(*concurrent, 0), "");
  concurrent->push(0, two.data(), {.rate = 1, .number = 9});
  EXPECT_EQ(parameters_of(*concurrent), Floats(6, 0));
  for (const int worker : {0, 1}) {
    concurrent->assign(worker, 8 + worker);
    EXPECT_EQ(outcome_of_pull(*concurrent, worker), "");
    concurrent->push(worker, one.data(), {.rate = 1, .number = 8 + worker});
  }
  EXPECT_EQ(parameters_of(*concurrent), Floats(6, -1));
}

/// A worker that was cut off repeats its pull and computes the same minibatch, which this server assigned.
TEST(ConcurrentServer, AMinibatchStaysAssignedToAWorkerThatWasCutOff) {
  const auto concurrent = make_concurrent(with("asp"), 2, 6);
  concurrent->assigns();
  Floats one(6, 1);
  concurrent->join(0);
  concurrent->assign(0, 8);
  concurrent->lose(0), concurrent->join(0);
  EXPECT_EQ(outcome_of_pull(*concurrent, 0), "");
  EXPECT_EQ(concurrent->push(0, one.data(), {.rate = 1, .number = 8}), applied(1));
}

TEST(ConcurrentServer, TheOnlyServerWaitsForThoseWhoWereThere) {
  const auto lost = make_concurrent(with("bsp"), 2, 6);
  const auto concurrent = begun_again(*lost, with("bsp"), 2, 6);
  Floats one(6, 1), two(6, 2);
  concurrent->join(1);
  EXPECT_EQ(outcome_of_pull(*concurrent, 1), "");
  EXPECT_EQ(concurrent->push(1, one.data(), {.rate = 1}), gathered(1)) << "the other one has not come back yet";
  concurrent->join(0);
  EXPECT_EQ(outcome_of_pull(*concurrent, 0), "");
  EXPECT_EQ(concurrent->push(0, two.data(), {.rate = 1}), applied(2));
}

TEST(ConcurrentServer, TheOnlyServerForgetsWhoDoesNotComeBack) {
  const auto lost = make_concurrent(with("bsp"), 2, 6);
  ManualClock clock;
  const auto concurrent = begun_again(*lost, with("bsp"), 2, 6, {.silence = std::chrono::seconds(1)}, clock);
  clock.advance(std::chrono::seconds(1));
  EXPECT_THAT(concurrent->forget_silent(), IsEmpty()) << "as long as that is allowed";
  clock.advance(Nanoseconds(1));
  EXPECT_THAT(concurrent->forget_silent(), ElementsAre(0, 1));
  Floats one(6, 1);
  concurrent->join(1);
  EXPECT_EQ(outcome_of_pull(*concurrent, 1), "");
  EXPECT_EQ(concurrent->push(1, one.data(), {.rate = 1}), applied(1));
}

constexpr ConcurrentServer::Limits kStartedAgain{.started_again = true};

TEST(ConcurrentServer, ALostWorkerThatIsStartedAgainKeepsItsPlaceInTheRound) {
  const auto concurrent = make_concurrent(with("bsp"), 2, 6, kStartedAgain);
  Floats one(6, 1), two(6, 2);
  EXPECT_EQ(outcome_of_pull(*concurrent, 0), "");
  EXPECT_EQ(outcome_of_pull(*concurrent, 1), "");
  EXPECT_EQ(concurrent->push(0, one.data(), {.rate = 1, .number = 1}), gathered(1));
  EXPECT_TRUE(concurrent->lose(1));
  EXPECT_TRUE(concurrent->lose(1)) << "it is told again and again";
  EXPECT_FALSE(concurrent->may_pull(0)) << "no update is made without it";
  concurrent->join(1);
  EXPECT_EQ(outcome_of_pull(*concurrent, 1), "");
  EXPECT_EQ(concurrent->push(1, two.data(), {.rate = 1, .number = 2}), applied(2));
  EXPECT_EQ(parameters_of(*concurrent), Floats(6, -1.5f));
}

TEST(ConcurrentServer, ALostWorkerThatHadContributedDoesNotContributeTwice) {
  const auto concurrent = make_concurrent(with("bsp"), 2, 6, kStartedAgain);
  Floats one(6, 1), two(6, 2);
  EXPECT_EQ(outcome_of_pull(*concurrent, 0), "");
  EXPECT_EQ(outcome_of_pull(*concurrent, 1), "");
  EXPECT_EQ(concurrent->push(1, two.data(), {.rate = 1}), gathered(1));
  EXPECT_TRUE(concurrent->lose(1));
  concurrent->join(1);
  EXPECT_FALSE(concurrent->may_pull(1));
  EXPECT_EQ(concurrent->push(0, one.data(), {.rate = 1}), applied(2));
  EXPECT_TRUE(concurrent->may_pull(1));
}

TEST(ConcurrentServer, ALostWorkerHasLeftWhereNobodyStartsItAgainOrWaitsForIt) {
  for (const auto& [consistency, limits] : {std::pair{"bsp", ConcurrentServer::Limits{}}, {"asp", kStartedAgain}}) {
    const auto concurrent = make_concurrent(with(consistency), 2, 6, limits);
    EXPECT_FALSE(concurrent->lose(1));
    EXPECT_FALSE(concurrent->may_pull(1)) << consistency;
  }
}

TEST(ConcurrentServer, ALostWorkerThatDoesNotComeBackIsForgotten) {
  ConcurrentServer::Limits limits = kStartedAgain;
  limits.silence = std::chrono::seconds(1);
  ManualClock clock;
  const auto concurrent = make_concurrent(with("bsp"), 1, 6, limits, clock);
  concurrent->lose(0);
  clock.advance(std::chrono::seconds(1));
  EXPECT_THAT(concurrent->forget_silent(), IsEmpty()) << "as long as that is allowed";
  clock.advance(Nanoseconds(1));
  EXPECT_THAT(concurrent->forget_silent(), ElementsAre(0));
  EXPECT_FALSE(concurrent->may_pull(0));
}

}  // namespace
}  // namespace paceline::ps
