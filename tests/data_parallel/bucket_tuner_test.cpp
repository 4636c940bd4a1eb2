// The bucket tuner with times made up by the test: nothing here waits.
#include "paceline/data_parallel/bucket_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "paceline/comm/engine.h"

namespace paceline::data_parallel {
namespace {

const std::vector<BucketPlan> kCuts = {{4, false}, {3, true}, {2, true}, {1, false}};

/// The cut that every worker ends with. `time_of(rank, cut, n)` is what the n-th step with a cut takes.
template <class Time>
std::vector<std::int64_t> tuned(int workers, const Time& time_of) {
  auto group = comm::local_group(workers);
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] {
      BucketTuner tuner(kCuts, *group[static_cast<std::size_t>(rank)]);
      std::map<std::int64_t, int> steps;
      for (int step = 0; step < 200; ++step) tuner.measured(time_of(rank, tuner.cut().bytes, ++steps[tuner.cut().bytes]));
      chosen[static_cast<std::size_t>(rank)] = tuner.cut().bytes;
    });
  for (std::thread& thread : threads) thread.join();
  return chosen;
}

TEST(BucketTuner, KeepsTheFastestCut) {
  for (const std::int64_t fastest : {4, 3, 2, 1}) {
    const auto time_of = [&](int, std::int64_t bytes, int) { return bytes == fastest ? 0.5 : 1.0 + 0.1 * static_cast<double>(bytes); };
    EXPECT_EQ(tuned(1, time_of), std::vector{fastest});
    EXPECT_EQ(tuned(3, time_of), std::vector(3, fastest));
  }
}

TEST(BucketTuner, JudgesACutByTheSlowestWorker) {
  // Cut 3 is the fastest on worker 0 and far too slow on worker 1; cut 2 is second on both.
  const auto time_of = [](int rank, std::int64_t bytes, int) { return bytes == 3 ? (rank == 0 ? 0.1 : 9.0) : bytes == 2 ? 0.5 : 1.0; };
  EXPECT_EQ(tuned(2, time_of), std::vector<std::int64_t>({2, 2}));
}

TEST(BucketTuner, IgnoresTheFirstStepOfACutAndOutliers) {
  // The best cut is slow where everything is: in its first step, and in two of the five that count.
  const auto time_of = [](int, std::int64_t bytes, int step) { return bytes == 2 ? (step == 1 || step > 4 ? 50.0 : 0.5) : 1.0; };
  EXPECT_EQ(tuned(2, time_of), std::vector<std::int64_t>({2, 2}));
}

}  // namespace
}  // namespace paceline::data_parallel
