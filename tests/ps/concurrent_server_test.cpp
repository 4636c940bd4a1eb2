// The server among threads: pulls and pushes at the same time, waiting that ends, workers that vanish, gradients that are no numbers.
#include "paceline/ps/concurrent_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/ps/client.h"
#include "tests/ps/admissions.h"
#include "tests/ps/small_concurrent.h"

namespace paceline::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Every gradient is ±2⁻ᵏ everywhere, so that the sums are exact in any order, and a pull that met a push half way shows two values.
TEST(ConcurrentServer, AppliesEveryPushOfManyThreadsOnceAndPullsNoHalfOfOne) {
  constexpr int kWorkers = 4, kSteps = 150;
  constexpr std::int64_t kLength = 5'003;
  const auto concurrent = make_concurrent(with("asp"), kWorkers, kLength);
  std::atomic<int> torn = 0;
  at_once(kWorkers, [&](int worker) {
    Floats values(kLength);
    for (int step = 0; step < kSteps; ++step) {
      concurrent->pull(worker, values.data(), 1);
      torn += std::ranges::adjacent_find(values, std::not_equal_to<>()) != values.end();
      std::ranges::fill(values, std::ldexp(step % 3 ? 1.0f : -1.0f, -worker));
      EXPECT_EQ(concurrent->push(worker, values.data(), {.rate = 0.5f}), applied(1));
    }
  });
  EXPECT_EQ(torn, 0);
  double sum = 0;
  for (int worker = 0; worker < kWorkers; ++worker) sum += std::ldexp(100.0 - 50.0, -worker);
  EXPECT_EQ(parameters_of(*concurrent), Floats(kLength, static_cast<float>(-0.5 * sum)));
  concurrent->with([](Server& server) {
    EXPECT_EQ(server.version(), kWorkers * kSteps);
    std::int64_t gradients = 0;
    for (const auto& [staleness, count] : server.staleness()) gradients += count;
    EXPECT_EQ(gradients, kWorkers * kSteps);
  });
}

// The gradient of worker m is (m+1)·w: all numbers are multiples of powers of two, so the mean is exact in whatever order they come.
TEST(ConcurrentServer, MakesOneUpdateOfAllThreadsUnderBsp) {
  constexpr int kWorkers = 4, kRounds = 8;
  constexpr std::int64_t kLength = 301;
  const auto concurrent = make_concurrent(with("bsp"), kWorkers, kLength);
  concurrent->with([](Server& server) { std::fill_n(server.parameters(), server.length(), 1.0f); });
  double expected = 1;
  std::vector<Floats> seen(kWorkers);
  at_once(kWorkers, [&](int worker) {
    Floats values(kLength);
    for (int round = 0; round < kRounds; ++round) {
      concurrent->pull(worker, values.data(), 0.5f);
      seen[static_cast<std::size_t>(worker)].push_back(values[kLength - 1]);
      for (float& value : values) value *= static_cast<float>(worker + 1);
      concurrent->push(worker, values.data(), {.rate = 0.5f});
    }
  });
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (const Floats& values : seen) EXPECT_EQ(values[round], expected) << "round " << round;
    expected -= 0.5 * (1 + 2 + 3 + 4) * expected / 4;
  }
  EXPECT_EQ(parameters_of(*concurrent), Floats(kLength, static_cast<float>(expected)));
  concurrent->with([](Server& server) { EXPECT_THAT(server.staleness(), ElementsAre(testing::Pair(0, kWorkers * kRounds))); });
}

TEST(ConcurrentServer, HoldsThreadsToTheBoundOfSsp) {
  constexpr int kWorkers = 4, kSteps = 200;
  const auto concurrent = make_concurrent(with("ssp", 2), kWorkers, 7);
  std::vector<std::atomic<int>> clocks(kWorkers);
  at_once(kWorkers, [&](int worker) {
    Floats values(7);
    for (int step = 0; step < kSteps; ++step) {
      concurrent->pull(worker, values.data(), 1);
      int slowest = step;  // clocks count before the push: what is read here is at least what the server saw
      for (const auto& clock : clocks) slowest = std::min(slowest, clock.load());
      EXPECT_LE(step - slowest, 2);
      ++clocks[static_cast<std::size_t>(worker)];
      concurrent->push(worker, values.data(), {.rate = 0});
    }
    concurrent->leave(worker);
  });
  concurrent->with([](Server& server) { EXPECT_EQ(server.version(), kWorkers * kSteps); });
}

TEST(ConcurrentServer, NamesTheLateWorkersWhenAPullWaitsTooLong) {
  const auto concurrent = make_concurrent(with("bsp"), 3, 5, {.wait = std::chrono::milliseconds(20)});
  Floats values(5);
  for (int worker = 0; worker < 3; ++worker) concurrent->pull(worker, values.data(), 1);
  concurrent->push(0, values.data(), {.rate = 1});
  try {
    concurrent->pull(0, values.data(), 1);
    FAIL() << "it was to wait";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("worker 0 waited"));
    EXPECT_THAT(error.what(), HasSubstr("for workers 1, 2 at version 0"));
    EXPECT_EQ(error.operation(), "pull");
  }
  concurrent->push(1, values.data(), {.rate = 1});
  concurrent->leave(1);
  EXPECT_THAT(outcome_of_pull(*concurrent, 0), HasSubstr("for worker 2 at version 0"));
  concurrent->push(2, values.data(), {.rate = 1});
  EXPECT_EQ(outcome_of_pull(*concurrent, 0), "") << "whoever waited in vain may ask again";
}

TEST(ConcurrentServer, NamesTheLateWorkerToThoseWhoAskAgainAndAgain) {
  for (const char* consistency : {"bsp", "ssp"}) {
    ManualClock clock;
    const auto concurrent = make_concurrent(with(consistency, 0), 3, 5, {.wait = std::chrono::seconds(20)}, clock);
    Floats values(5);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_TRUE(concurrent->may_begin(worker, true));
      concurrent->pull(worker, values.data(), 1);
    }
    for (const int worker : {0, 2}) concurrent->push(worker, values.data(), {.rate = 1});
    for (const int worker : {0, 2}) EXPECT_FALSE(concurrent->may_begin(worker, true));
    clock.advance(std::chrono::seconds(20) - Nanoseconds(1));
    EXPECT_FALSE(concurrent->may_begin(0, true)) << "not yet";
    clock.advance(Nanoseconds(1));
    concurrent->heard_of(1);  // it computes
    EXPECT_FALSE(concurrent->may_begin(2, false)) << "without work nobody waits";
    EXPECT_FALSE(concurrent->may_begin(2, true)) << "and the time begins anew";
    try {
      concurrent->may_begin(0, true);
      ADD_FAILURE() << consistency << ": it was to be told";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("worker 0"), HasSubstr("20.0 s"), HasSubstr("worker 1")));
      EXPECT_THAT(error.what(), HasSubstr("raise ps.deadline_s"));
    }
    concurrent->push(1, values.data(), {.rate = 1});
    EXPECT_TRUE(concurrent->may_begin(0, true)) << consistency;
  }
}

// Both limits are the same in a run. Whoever is silent for half of it does not beat, and will be forgotten within the other half.
TEST(ConcurrentServer, WaitsBeyondItsLimitForWhoeverIsAboutToBeForgotten) {
  const Nanoseconds limit = std::chrono::seconds(12);
  for (const bool forgotten : {true, false}) {
    ManualClock clock;
    const auto concurrent = make_concurrent(with("bsp"), 2, 5, {.wait = limit / 2, .silence = limit}, clock);
    Floats values(5);
    for (const int worker : {0, 1}) concurrent->pull(worker, values.data(), 1);
    clock.advance(limit / 4);
    concurrent->push(0, values.data(), {.rate = 1});
    std::string outcome;
    {
      const std::jthread waiting([&] { outcome = outcome_of_pull(*concurrent, 0); });
      EXPECT_TRUE(clock.await_looks(2)) << "it begins to wait";
      clock.advance(limit / 2);
      EXPECT_TRUE(clock.await_looks(6)) << "past its limit it waits on: worker 1 has been silent for three quarters of its own";
      clock.advance(limit / 4 + Nanoseconds(1));
      if (forgotten) EXPECT_THAT(concurrent->forget_silent(), ElementsAre(1));
      else clock.advance(limit / 4);  // nobody forgets it
    }
    if (forgotten) EXPECT_EQ(outcome, "");
    else EXPECT_THAT(outcome, HasSubstr("worker 0 waited 6.0 s for worker 1"));
  }
}

// Worker 1 was forgotten by two servers and comes back, to the second one when its round is over. It is a round ahead there, and if it has
// the only minibatch that is left, worker 0 has nothing to catch up with.
TEST(ConcurrentServer, LetsAWorkerPullThatIsARoundAheadWhereNobodyComputes) {
  const auto first = make_concurrent(with("bsp"), 2, 5),
             second = make_concurrent(with("bsp"), 2, 5, {.wait = std::chrono::milliseconds(100)});
  Floats values(5);
  const auto pull = [&](int worker) { return outcome_of_pull(*first, worker) + outcome_of_pull(*second, worker); };
  for (const int worker : {0, 1}) EXPECT_EQ(pull(worker), "");
  first->leave(1), first->join(1);
  for (const auto& concurrent : {first, second}) concurrent->push(0, values.data(), {.rate = 1});
  second->leave(1), second->join(1);
  EXPECT_EQ(pull(1), "");
  EXPECT_EQ(first->push(1, values.data(), {.rate = 1}), applied(2));
  EXPECT_EQ(second->push(1, values.data(), {.rate = 1}), gathered(1));
  EXPECT_EQ(pull(1), "") << "nobody computes";
  EXPECT_EQ(pull(0), "");
  for (const auto& concurrent : {first, second}) {  // both servers are in the same round again
    EXPECT_EQ(concurrent->push(1, values.data(), {.rate = 1}), gathered(1));
    EXPECT_EQ(concurrent->push(0, values.data(), {.rate = 1}), applied(2));
  }
}

TEST(ConcurrentServer, RefusesAGradientThatIsNoNumberAndTheWorkerGoesOn) {
  const auto concurrent = make_concurrent(with("bsp"), 2, 1'000);
  Floats values(1'000);
  for (const int worker : {0, 1}) concurrent->pull(worker, values.data(), 1);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Floats gradient(1'000, 1);
    gradient[777] = bad;
    EXPECT_EQ(concurrent->push(0, gradient.data(), {.rate = 1}).fate, Admission::Fate::dropped);
    EXPECT_EQ(parameters_of(*concurrent), Floats(1'000, 0));
    concurrent->pull(0, values.data(), 1);
  }
  Floats one(1'000, 1), two(1'000, 2);
  EXPECT_EQ(concurrent->push(0, one.data(), {.rate = 1}), gathered(1));
  EXPECT_EQ(concurrent->push(1, two.data(), {.rate = 1}), applied(2));
  EXPECT_EQ(parameters_of(*concurrent), Floats(1'000, -1.5f));
  concurrent->with([](Server& server) {
    EXPECT_EQ(server.refused(), 2);
    EXPECT_EQ(server.dropped(), 0);
    EXPECT_EQ(server.version(), 1);
  });
}

TEST(ConcurrentServer, RefusesWhatAWorkerItselfRefuses) {
  const auto concurrent = make_concurrent(with("bsp"), 2, 10);
  Floats values(10);
  for (const int worker : {0, 1}) concurrent->pull(worker, values.data(), 1);
  concurrent->refuse(0);
  EXPECT_TRUE(concurrent->may_pull(0));
  concurrent->with([](Server& server) { EXPECT_EQ(server.refused(), 1); });
}

// In several ranges: a gradient is used by all of them or by none.
TEST(ConcurrentServer, RefusesAGradientInAllRanges) {
  std::vector<std::shared_ptr<ConcurrentServer>> concurrents;
  for (const auto& [begin, end] : {std::pair(0, 30), std::pair(30, 90)})
    concurrents.push_back(
        std::make_shared<ConcurrentServer>(make_server(with("asp"), 1, 90, begin, end), ConcurrentServer::Limits{}, steady_clock()));
  const auto client = make_in_process_client(concurrents, {0, 30, 90}, 0);
  Floats values(90);
  client->pull(values.data(), 1);
  Floats gradient(90, 1);
  gradient[80] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(client->push(gradient.data(), {.rate = 1}).fate, Admission::Fate::dropped);
  for (const auto& concurrent : concurrents) {
    concurrent->with([](Server& server) { EXPECT_EQ(server.refused(), 1); });
    EXPECT_EQ(parameters_of(*concurrent), Floats(static_cast<std::size_t>(concurrent->length()), 0));
  }
}

TEST(ConcurrentServer, FreesThoseWhoWaitForAWorkerThatLeaves) {
  const auto concurrent = make_concurrent(with("bsp"), 3, 9);
  Floats values(9);
  for (int worker = 0; worker < 3; ++worker) concurrent->pull(worker, values.data(), 1);
  std::vector<Floats> got(2, Floats(9));
  {
    std::vector<std::jthread> threads;
    for (const int worker : {0, 1})
      threads.emplace_back([&, worker] {
        Floats gradient(9, static_cast<float>(2 * worker + 1));
        concurrent->push(worker, gradient.data(), {.rate = 1});
        concurrent->pull(worker, got[static_cast<std::size_t>(worker)].data(), 1);
      });
    // Only once both have contributed, so that the update is the mean of the two.
    while (concurrent->with([](Server& server) { return server.staleness().empty() ? 0 : server.staleness().at(0); }) < 2)
      std::this_thread::yield();
    concurrent->leave(2);
  }
  EXPECT_EQ(got[0], Floats(9, -2)) << "the mean of 1 and 3";
  EXPECT_EQ(got[1], Floats(9, -2));
  EXPECT_EQ(concurrent->push(2, values.data(), {.rate = 1}), kDropped) << "it has left";
}

TEST(ConcurrentServer, TellsAWorkerThatWasSentAwayWhileItWaited) {
  const auto concurrent = make_concurrent(with("bsp"), 2, 3);
  Floats values(3);
  for (const int worker : {0, 1}) concurrent->pull(worker, values.data(), 1);
  concurrent->push(0, values.data(), {.rate = 1});
  std::string outcome;
  {
    const std::jthread waiting([&] { outcome = outcome_of_pull(*concurrent, 0); });
    concurrent->leave(0);
  }
  // Where the thread came late it finds itself gone from the start.
  EXPECT_THAT(outcome, HasSubstr("worker 0 left"));
}

TEST(ConcurrentServer, WakesEverybodyWhenItCloses) {
  const auto concurrent = make_concurrent(with("bsp"), 4, 3);
  Floats values(3);
  for (int worker = 0; worker < 4; ++worker) concurrent->pull(worker, values.data(), 1);
  for (const int worker : {0, 1, 2}) concurrent->push(worker, values.data(), {.rate = 1});
  std::vector<std::string> outcomes(3);
  {
    std::vector<std::jthread> threads;
    for (int worker = 0; worker < 3; ++worker)
      threads.emplace_back([&, worker] { outcomes[static_cast<std::size_t>(worker)] = outcome_of_pull(*concurrent, worker); });
    concurrent->close("the run was stopped by a signal");
  }
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "the run was stopped by a signal");
  EXPECT_EQ(outcome_of_pull(*concurrent, 3), "the run was stopped by a signal") << "nor does anyone begin to wait";
}

TEST(ConcurrentServer, ForgetsWhoIsSilentAndNobodyElse) {
  const Nanoseconds silence = std::chrono::seconds(30);
  ManualClock clock;
  const auto concurrent = make_concurrent(with("bsp"), 3, 3, {.silence = silence}, clock);
  clock.advance(silence);
  EXPECT_THAT(concurrent->forget_silent(), IsEmpty());
  concurrent->heard_of(1);
  clock.advance(Nanoseconds(1));
  EXPECT_THAT(concurrent->forget_silent(), ElementsAre(0, 2));
  EXPECT_FALSE(concurrent->may_pull(0));
  EXPECT_TRUE(concurrent->may_pull(1));
  EXPECT_EQ(outcome_of_pull(*concurrent, 0).substr(0, 13), "worker 0 left");
  concurrent->join(0);
  EXPECT_TRUE(concurrent->may_pull(0)) << "it may come back";
}

}  // namespace
}  // namespace paceline::ps
