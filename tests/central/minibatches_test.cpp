// Which minibatch is where, event by event.
#include "paceline/central/minibatches.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paceline::central {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using Kind = ps::Journal::Kind;

constexpr Nanoseconds kDeadline = std::chrono::seconds(10), kStart{0};

ps::Task task(std::int64_t step) { return {.epoch = 0, .batch = step - 1, .step = step}; }
ps::Completed done(std::int64_t step) { return {.number = step, .loss = static_cast<double>(step), .right = 1, .targets = 2}; }

/// Minibatches 1 to `count` wait for workers.
Minibatches waiting(std::int64_t count, bool durable = true) {
  Minibatches minibatches(durable, kDeadline);
  for (std::int64_t step = 1; step <= count; ++step) {
    EXPECT_TRUE(minibatches.begin(task(step), kStart));
    minibatches.add(task(step));
  }
  return minibatches;
}

TEST(Minibatches, AreDealtOutInTheirOrderAndCountedOnce) {
  Minibatches minibatches = waiting(3);
  EXPECT_EQ(minibatches.assign(5).step, 1);
  EXPECT_EQ(minibatches.assign(7).step, 2);
  EXPECT_THAT(minibatches.assigned(), ElementsAre(Pair(5, 1), Pair(7, 2)));
  EXPECT_TRUE(minibatches.complete(7, done(2)));
  EXPECT_FALSE(minibatches.complete(7, done(2))) << "a duplicate";
  EXPECT_TRUE(minibatches.complete(5, done(1)));
  const ps::Task last = minibatches.assign(5);
  EXPECT_EQ(last.step, 3);
  EXPECT_EQ(last.complete_below, 3) << "both before it are complete";
  EXPECT_FALSE(minibatches.all_complete());
  EXPECT_TRUE(minibatches.complete(5, done(3)));
  EXPECT_TRUE(minibatches.all_complete());
  EXPECT_EQ(minibatches.finished(), 3);
  const step::StepResult sums = minibatches.take_sums();
  EXPECT_EQ(sums.targets, 6);
  EXPECT_EQ(sums.sums[0].item<double>(), 1 + 2 + 3);
}

TEST(Minibatches, OfALostWorkerAreDealtOutAgain) {
  Minibatches minibatches = waiting(2);
  const ps::Task lost = minibatches.assign(0);
  EXPECT_TRUE(minibatches.lose(0, lost, /*keeps_place=*/false, kStart));
  EXPECT_THAT(minibatches.assigned(), IsEmpty());
  EXPECT_EQ(minibatches.assign(1).step, 1) << "before those that come later";
  EXPECT_TRUE(minibatches.complete(0, done(1))) << "it had reached the servers after all";
  EXPECT_FALSE(minibatches.complete(1, done(1)));
  EXPECT_FALSE(minibatches.lose(1, lost, false, kStart)) << "it is complete";
}

TEST(Minibatches, WithoutJournalsCountOnlyForWhoeverHasThem) {
  Minibatches minibatches = waiting(1, /*durable=*/false);
  const ps::Task lost = minibatches.assign(0);
  minibatches.lose(0, lost, false, kStart);
  EXPECT_EQ(minibatches.assign(1).step, 1);
  EXPECT_FALSE(minibatches.complete(0, done(1))) << "its push was dropped when it reconnected";
  EXPECT_TRUE(minibatches.complete(1, done(1)));
}

TEST(Minibatches, AreKeptForAWorkerThatIsExpectedBack) {
  for (const bool comes_back : {true, false}) {
    Minibatches minibatches = waiting(1);
    minibatches.lose(0, minibatches.assign(0), /*keeps_place=*/true, kStart);
    minibatches.asks(1, kStart + kDeadline - Nanoseconds(1));
    EXPECT_FALSE(minibatches.any_for(1));
    minibatches.asks(comes_back ? 0 : 1, kStart + kDeadline);
    EXPECT_TRUE(minibatches.any_for(comes_back ? 0 : 1));
    EXPECT_EQ(minibatches.assign(comes_back ? 0 : 1).step, 1);
  }
}

TEST(Minibatches, AfterARestartAreCompleteExpectedBackOrDealtOut) {
  Minibatches minibatches(true, kDeadline);
  minibatches.replay(Kind::assigned, 0, {.number = 11});
  minibatches.replay(Kind::assigned, 1, {.number = 12});
  minibatches.replay(Kind::completed, 0, done(11));
  minibatches.replay(Kind::completed, 0, done(11));
  EXPECT_EQ(minibatches.replayed(), 1);
  EXPECT_FALSE(minibatches.begin(task(11), kStart)) << "complete";
  EXPECT_EQ(minibatches.take_sums().targets, 2) << "and counted";
  EXPECT_FALSE(minibatches.begin(task(12), kStart)) << "worker 1 may still be at it";
  EXPECT_TRUE(minibatches.begin(task(13), kStart));
  minibatches.add(task(13));
  minibatches.asks(0, kStart);
  const ps::Task next = minibatches.assign(0);
  EXPECT_EQ(next.step, 13);
  EXPECT_EQ(next.complete_below, 12);
  EXPECT_TRUE(minibatches.complete(1, done(12))) << "it came back with it";
  EXPECT_TRUE(minibatches.complete(0, done(13)));
  EXPECT_TRUE(minibatches.all_complete());
}

}  // namespace
}  // namespace paceline::central
