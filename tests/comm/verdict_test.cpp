#include "paceline/comm/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr Nanoseconds kTick = 100ms, kLimit = 4s;

/// A counter whose time passes in ticks; the ranks that live beat in each of them.
class SilenceTest : public testing::Test {
 protected:
  void run(Nanoseconds duration, const std::vector<int>& living) {
    for (const Nanoseconds end = clock_.now() + duration; clock_.now() < end;) {
      clock_.advance(kTick);
      for (const int rank : living) silence_.beat(rank, kLimit);
      silence_.look(clock_.now());
    }
  }
  int lost() const { return silence_.loss() ? silence_.loss()->rank : -1; }

  VirtualClock clock_;
  Silence silence_;
};

TEST_F(SilenceTest, ARankWhoseProcessRunsIsExcused) {
  silence_.beat(1, kLimit);
  for (int i = 0; i < 10; ++i) {
    run(kLimit / 2 + 2 * kTick, {});
    ASSERT_TRUE(silence_.is_quiet(1));
    silence_.excuse(1);
  }
  EXPECT_FALSE(silence_.loss());
  run(kLimit + 2 * kTick, {});
  EXPECT_TRUE(silence_.loss()) << "nobody excuses it any more";
}

TEST_F(SilenceTest, NamesWhoWasSilentForTheLimit) {
  run(1s, {0, 1, 2});
  run(kLimit - kTick, {0, 1});
  EXPECT_EQ(lost(), -1);
  run(kTick, {0, 1});
  EXPECT_EQ(lost(), 2);
  EXPECT_EQ(silence_.loss()->silent, kLimit);
  EXPECT_THAT(silence_.loss()->text(), HasSubstr("no heartbeat for 4 s"));
}

TEST_F(SilenceTest, APauseBelowTheLimitPasses) {
  for (int pause = 0; pause < 5; ++pause) {
    run(1s, {0, 1, 2});
    run(2s, {0, 1});
  }
  EXPECT_EQ(lost(), -1);
}

TEST_F(SilenceTest, DecidesOnce) {
  run(1s, {0, 1, 2});
  run(kLimit, {0, 1});
  run(1s, {0, 1, 2});  // it goes on, too late
  run(2 * kLimit, {0, 2});
  EXPECT_EQ(lost(), 2);
}

TEST_F(SilenceTest, NamesTheOneThatWasSilentTheLongest) {
  run(1s, {0, 1, 2});
  run(200ms, {0, 1});
  run(kLimit, {0});
  EXPECT_EQ(lost(), 2);
}

TEST_F(SilenceTest, OfTwoThatPassTheirLimitsTogetherNamesTheOneThatWasSilentLonger) {
  for (const int longer : {1, 2}) {
    silence_ = Silence();
    const int other = 3 - longer;
    silence_.beat(longer, kLimit + 10 * kTick);
    run(11 * kTick, {other});  // a silence begins with the next look
    run(2 * kLimit, {});
    EXPECT_EQ(lost(), longer);
  }
}

// A stopped counter hears nobody; what the others sent meanwhile is read right after. A suspended laptop is the same.
TEST_F(SilenceTest, ItsOwnPauseCountsForNobody) {
  run(1s, {0, 1, 2});
  clock_.advance(std::chrono::hours(1));
  silence_.look(clock_.now());
  EXPECT_EQ(lost(), -1);
  run(1s, {0, 1, 2});
  EXPECT_EQ(lost(), -1);
}

// One core for many ranks: the counter gets it rarely, and so do the others.
TEST_F(SilenceTest, AStarvedCounterNeedsAsManyLooks) {
  run(1s, {0, 1});
  const auto looks = kLimit / Silence::kMostPerLook;  // each counts so much, however long it took to come
  for (int look = 1; look < looks; ++look) {
    clock_.advance(3s);
    silence_.beat(0, kLimit);
    silence_.look(clock_.now());
    EXPECT_EQ(lost(), -1) << look;
  }
  clock_.advance(3s);
  silence_.beat(0, kLimit);
  silence_.look(clock_.now());
  EXPECT_EQ(lost(), 1);
}

TEST_F(SilenceTest, WhoLeavesIsNotSilent) {
  run(1s, {0, 1, 2});
  silence_.forget(2);
  run(3 * kLimit, {0, 1});
  EXPECT_EQ(lost(), -1);
}

TEST_F(SilenceTest, ALimitOfZeroMeansNever) {
  silence_.beat(1, Nanoseconds(0));
  run(1h, {0});
  EXPECT_EQ(lost(), -1);
}

TEST(Accusations, TheLastOfTheChainIsTheCulprit) {
  Accusations accusations;
  accusations.accuse(0, 1);
  EXPECT_EQ(accusations.follow(0).culprit, 1);
  accusations.accuse(1, 2);
  accusations.accuse(2, 3);
  for (const int accuser : {0, 1, 2}) {
    EXPECT_EQ(accusations.follow(accuser).culprit, 3) << accuser;
    EXPECT_FALSE(accusations.follow(accuser).circle);
  }
}

TEST(Accusations, InACircleEachNamesTheOneItWaitsFor) {
  Accusations accusations;
  for (const int rank : {0, 1, 2}) accusations.accuse(rank, (rank + 1) % 3);
  accusations.accuse(3, 0);
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_EQ(accusations.follow(rank).culprit, (rank + 1) % 3 * (rank < 3)) << rank;
    EXPECT_TRUE(accusations.follow(rank).circle);
  }
}

}  // namespace
}  // namespace paceline::comm
