// Operations that go on while their callers do something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "paceline/comm/scratch.h"
#include "ranks.h"

namespace paceline::comm {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int kSizes[] = {1, 2, 3, 5};

TEST(Start, ManyAreDoneInTheOrderOfTheCalls) {
  for (const int size : kSizes) {
    const auto problems = play(size, {}, [&](Communicator& comm) {
      std::vector<std::vector<float>> buckets(10);
      std::vector<Work> works;
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        buckets[i].assign(1000 * (i + 1), static_cast<float>(i + 1));
        works.push_back(comm.start(allreduce(buckets[i])));
      }
      for (std::size_t i = buckets.size(); i-- > 0;) {  // the last first
        works[i].wait();
        EXPECT_TRUE(works[i].done());
        EXPECT_THAT(buckets[i], Each(static_cast<float>((static_cast<int>(i) + 1) * size)));
      }
    });
    EXPECT_THAT(problems, Each(""));
  }
}

TEST(Start, AskingWhetherItIsDoneIsEnough) {
  const auto problems = play(3, {}, [&](Communicator& comm) {
    std::vector<float> values(100000, 1);
    const Work work = comm.start(allreduce(values));
    while (!work.done()) std::this_thread::yield();
    EXPECT_THAT(values, Each(3.0f));
  });
  EXPECT_THAT(problems, Each(""));
}

// One rank waits at once, the other does not look at its operation until then: the helper must do its part.
TEST(Start, NobodyWaitsForARankThatDoesSomethingElse) {
  std::latch first_is_done(1);
  const auto problems = play(2, {}, [&](Communicator& comm) {
    std::vector<float> values(100000, 1);
    const Work work = comm.start(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = {}, .deadline = milliseconds(5000)}));
    if (comm.rank() == 1) first_is_done.wait();
    work.wait();
    if (comm.rank() == 0) first_is_done.count_down();
    EXPECT_THAT(values, Each(2.0f));
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Start, SeveralThreadsWaitForOneRank) {
  const auto problems = play(2, {}, [&](Communicator& comm) {
    std::vector<std::vector<float>> values(4, std::vector<float>(50000, 1));
    std::vector<Work> works;
    for (auto& own : values) works.push_back(comm.start(allreduce(own)));
    std::vector<std::thread> threads;
    for (const Work& work : works) threads.emplace_back([&work] { work.wait(); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& own : values) EXPECT_THAT(own, Each(2.0f));
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Start, RunGoesBehindWhatWasStarted) {
  const auto problems = play(3, {}, [&](Communicator& comm) {
    std::vector<float> a(20000, 1), b(20000, 2);
    const Work work = comm.start(allreduce(a));
    comm.run(allreduce(b));
    EXPECT_TRUE(work.done());
    EXPECT_THAT(a, Each(3.0f));
    EXPECT_THAT(b, Each(6.0f));
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Start, WhoeverStillWaitsLearnsThatTheCommunicatorIsGone) {
  auto group = local_group(2, {});
  std::vector<float> values(5000);
  const Work work = group[0]->start(allreduce(values));
  group[0].reset();
  EXPECT_TRUE(work.done());
  EXPECT_THROW(work.wait(), Error);
}

// Rank 1 leaves; rank 2 has begun the ring and looks at it only when the others know. They wait for nobody but rank 2.
TEST(Start, WhoComputesPassesOnThatAnotherIsGone) {
  CommConfig config;
  config.algorithm = "ring";
  auto group = local_group(4, config);
  std::latch others_know(2);
  std::vector<int> culprits(4, -1);
  std::vector<std::thread> threads;
  for (const std::size_t rank : {0, 2, 3})
    threads.emplace_back([&, rank] {
      std::vector<float> values(1000);
      try {
        const Work work = group[rank]->start(allreduce(values));
        if (rank == 2) others_know.wait();
        work.wait();
      } catch (const PeerError& problem) {
        culprits[rank] = problem.rank();
        EXPECT_THAT(problem.what(), Not(HasSubstr("did not come")));
      }
      if (rank != 2) others_know.count_down();
    });
  group[1].reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(culprits, ElementsAre(1, -1, 1, 1));
}

TEST(Start, WhatIsGivenUpLeavesItsMemoryAlone) {
  auto group = local_group(2, {});
  std::vector<float> unwanted(5000, -1), wanted(5000), sent(5000, 7);
  const Work given_up = group[0]->start(receive(unwanted, 1));
  given_up.abandon();
  EXPECT_TRUE(given_up.done());
  EXPECT_THROW(given_up.wait(), Error);
  const Work sending = group[1]->start(send(sent, 0));
  group[0]->run(receive(wanted, 1));  // the message is for who still waits
  sending.wait();
  EXPECT_THAT(wanted, Each(7.0f));
  EXPECT_THAT(unwanted, Each(-1.0f));
}

TEST(Start, ACollectiveThatIsGivenUpIsTheLast) {
  auto group = local_group(2, {});
  std::vector<float> values(5000);
  const Work first = group[0]->start(allreduce(values)), second = group[0]->start(allreduce(values));
  first.abandon();
  EXPECT_TRUE(second.done());
  EXPECT_THROW(second.wait(), Error);
  EXPECT_THROW(group[0]->run(barrier()), Error);
}

// It came, so the other one has nobody to wait for; but its memory is gone.
TEST(Start, ARankThatGaveUpAfterItCameIsNamed) {
  auto group = local_group(2, {});
  auto gone = std::make_unique<std::vector<float>>(5000, 1);
  std::vector<float> values(5000, 3);
  const Work work = group[0]->start(allreduce(*gone));
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < until) work.done();  // its helper comes to the meeting
  work.abandon();
  group[0].reset(), gone.reset();
  try {
    group[1]->run(allreduce(values));
    FAIL() << "nobody noticed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 0) << error.what();
  }
  EXPECT_THAT(values, Each(3.0f));
}

TEST(Start, WhatIsDoneCanBeGivenUp) {
  const auto problems = play(2, {}, [&](Communicator& comm) {
    std::vector<float> values(100, 1);
    const Work work = comm.start(allreduce(values));
    work.wait();
    work.abandon();
    work.wait();
    comm.run(barrier());
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Scratch, GivesTheSameMemoryAgain) {
  Scratch scratch;
  const std::byte* first = scratch.take(1000).get();
  EXPECT_EQ(scratch.take(900).get(), first);
  const Scratch::Piece held = scratch.take(1000);
  EXPECT_NE(scratch.take(1000).get(), held.get());
}

}  // namespace
}  // namespace paceline::comm
