#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.h"
#include "paceline/base/error.h"
#include "paceline/perf/servers.h"

namespace paceline::sim {
namespace {

using Exchange = schedule::Action::Exchange;
using Work = schedule::Action::Work;
constexpr auto kServer = schedule::Action::Axis::server;
constexpr double kAlpha = 1e-5, kBytesPerS = 1e9;

/// Pull, four milliseconds of computing, push.
Job server_job(int workers, int servers, std::int64_t elements, const std::string& consistency) {
  Job job{.stages = {{exchange(Exchange::pull, elements, {}, schedule::Action::Lane::compute, kServer), compute(Work::forward, 0, 2),
                      compute(Work::backward, 0, 2), exchange(Exchange::push, elements, {}, schedule::Action::Lane::compute, kServer)}},
          .settings = {},
          .cluster = hosts(workers, kAlpha, kBytesPerS)};
  job.settings.data = workers, job.settings.servers = servers, job.steps = 6;
  job.servers.consistency = consistency;
  return job;
}

class Incast : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Incast, AllAtOnceTakesTheClosedForm) {
  const auto [workers, servers] = GetParam();
  const double each_way = perf::incast_seconds({.workers = workers,
                                                .servers = servers,
                                                .bytes = 4e6,
                                                .worker_bytes_per_s = kBytesPerS,
                                                .server_bytes_per_s = kBytesPerS,
                                                .alpha_s = kAlpha});
  const Replayed done = run(server_job(workers, servers, 1'000'000, "bsp"));
  EXPECT_TRUE(done.synchronous);
  for (const double step : done.steps) EXPECT_NEAR(step, 4e-3 + 2 * each_way, 1e-6);
  EXPECT_EQ(done.updates, 6);
  EXPECT_EQ(done.staleness, std::vector<std::int64_t>{6 * workers}) << "nobody is stale";
}
INSTANTIATE_TEST_SUITE_P(, Incast, testing::Values(std::pair{1, 1}, std::pair{16, 1}, std::pair{16, 4}, std::pair{8, 16}));

TEST(Servers, TheServersOwnWorkTakesItsTime) {
  Job job = server_job(4, 2, 1'000'000, "bsp");
  const double before = run(job).steps[2];
  job.cluster.device.reduce_bandwidth.value = 1e9;
  // Four gradients are added up one after the other, each server its half; then one update.
  EXPECT_NEAR(run(job, PlainTimes(1e-3, 3e-3)).steps[2], before + 4 * 2e6 / 1e9 + 3e-3, 1e-6);
}

TEST(Servers, AsynchronousWorkersAreBoundByThemselvesOrByTheServersLink) {
  Job job = server_job(2, 1, 250'000, "asp");
  job.timing.distribution = "gamma", job.timing.shape = 2, job.steps = 200;
  const Replayed few = run(job);
  EXPECT_FALSE(few.synchronous);
  const double alone = 4e-3 + 2 * (kAlpha + 1e6 / kBytesPerS);
  EXPECT_GT(few.steps_per_s, 0.85 * 2 / alone);
  EXPECT_LT(few.steps_per_s, 2 / alone * 1.05);
  job = server_job(60, 1, 250'000, "asp");
  job.timing.distribution = "gamma", job.timing.shape = 0.5, job.steps = 40;
  const Replayed many = run(job);
  EXPECT_LT(many.steps_per_s, kBytesPerS / 1e6) << "a pull and a push for each millisecond of its link";
  EXPECT_GT(many.steps_per_s, 0.75 * kBytesPerS / 1e6);
  ASSERT_EQ(many.links[2].kind, "servers' links");
  EXPECT_GT(many.links[2].most, 0.75);
}

TEST(Servers, WorkersThatAreAllAlikeStayInEachOthersWay) {
  // Without jitter they pull together, compute together and push together, although nobody makes them: half of the server's link is idle.
  const Replayed done = run(server_job(40, 1, 250'000, "asp"));
  EXPECT_NEAR(done.steps_per_s, 40 / (4e-3 + 2 * (kAlpha + 40e6 / kBytesPerS)), 5);
}

TEST(Servers, AFastWorkerDoesNotWaitForASlowOneUnlessTheBoundSaysSo) {
  Job job = server_job(4, 1, 1000, "asp");
  job.timing.slow_workers = {0}, job.timing.slow_factor = 10, job.steps = 40;
  const double asp = run(job).steps_per_s;
  job.servers = {.consistency = "ssp", .settings = {.bound = 1}};
  const double ssp = run(job).steps_per_s;
  job.servers = {.consistency = "bsp"};
  const double bsp = run(job).steps_per_s * 4;
  EXPECT_GT(asp, 2.5 * bsp) << "three fast workers go on";
  EXPECT_LT(ssp, 1.3 * bsp) << "they are at most one step ahead";
}

/// Three steps of four milliseconds between two visits: the first begins with a pull, the last ends with a push.
TEST(Servers, WorkersMayVisitEveryFewSteps) {
  for (const char* consistency : {"bsp", "asp"}) {
    const Job visit = server_job(4, 1, 1'000'000, consistency);
    const schedule::Program& whole = visit.stages[0];
    Job job = visit;
    job.opening = {{whole.begin(), whole.end() - 1}}, job.between = {{whole.begin() + 1, whole.end() - 1}};
    job.stages = {{whole.begin() + 1, whole.end()}}, job.period = 3;
    const Replayed done = run(job);
    const double each_way = kAlpha + 4 * 4e6 / kBytesPerS;  // all at once
    EXPECT_NEAR(done.seconds, 2 * (3 * 4e-3 + 2 * each_way), 1e-5) << consistency;
    if (!done.synchronous) {  // the end does not wait for updates whose pushes have arrived
      EXPECT_GT(done.updates, 4);
      EXPECT_LE(done.updates, 8);
      continue;
    }
    EXPECT_EQ(done.updates, 2);
    ASSERT_EQ(done.steps.size(), 6U);
    EXPECT_NEAR(done.steps[1], 4e-3, 1e-6);
    EXPECT_NEAR(done.steps[2], 4e-3 + each_way, 1e-6);
    EXPECT_NEAR(done.steps[3], 4e-3 + each_way, 1e-6);
  }
}

TEST(Servers, StalenessIsWhatTheOthersDidMeanwhile) {
  Job job = server_job(8, 1, 1000, "asp");
  job.timing.distribution = "gamma", job.steps = 50;
  const Replayed done = run(job);
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < done.staleness.size(); ++i)
    sum += static_cast<double>(i) * static_cast<double>(done.staleness[i]), count += static_cast<double>(done.staleness[i]);
  EXPECT_NEAR(sum / count, 7, 0.3) << "workers − 1, where all are equally fast";
  EXPECT_EQ(done.updates, static_cast<std::int64_t>(count));
}

TEST(Servers, WorkersOfKSyncLeaveOffAndBeginAnew) {
  Job job = server_job(8, 1, 1000, "bsp");
  job.timing.distribution = "exponential_tail", job.timing.tail = 0.9, job.steps = 100;
  const Replayed all = run(job);
  job.servers = {.consistency = "k_sync", .settings = {.group = 4}};
  const Replayed half = run(job);
  EXPECT_GT(half.dropped, 0);
  EXPECT_GT(static_cast<double>(half.updates) / half.seconds, 1.5 * static_cast<double>(all.updates) / all.seconds)
      << "an update waits for the fourth of eight";
}

TEST(Servers, RefusesModelsThatAreCutAndUnknownConsistencies) {
  Job job = server_job(4, 1, 1000, "bsp");
  job.settings.data = 2, job.settings.tensor = 2;
  EXPECT_THAT([&] { run(job); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr("parallel.tensor")));
  EXPECT_THAT([&] { run(server_job(4, 1, 1000, "bps")); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr("bsp")));
}

}  // namespace
}  // namespace paceline::sim
