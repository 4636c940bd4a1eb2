// Servers, stragglers and failures against known formulas and against games of chance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/perf/goodput.h"
#include "paceline/perf/servers.h"
#include "paceline/perf/stragglers.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

TEST(Servers, IncastIsTheSlowerSide) {
  ServerLoad load{.workers = 8, .servers = 2, .bytes = 100, .worker_bytes_per_s = 10, .server_bytes_per_s = 20, .alpha_s = 1};
  EXPECT_DOUBLE_EQ(incast_seconds(load), 1 + 8 * 100.0 / 2 / 20);
  load.servers = 100;
  EXPECT_DOUBLE_EQ(incast_seconds(load), 1 + 100.0 / 10);
}

TEST(Servers, BytePsFallsToTheRingAndToTheServer) {
  for (const std::int64_t hosts : {2, 8, 64}) {
    const double n = static_cast<double>(hosts);
    EXPECT_DOUBLE_EQ(byteps_seconds(hosts, 0, 1e9, 1e9), 2 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(byteps_seconds(hosts, hosts, 1e9, 1e9), 1);
    EXPECT_DOUBLE_EQ(byteps_seconds(hosts, 2 * hosts, 1e9, 1e9), 1) << "more servers than workers help no more";
    for (std::int64_t k = 1; k <= hosts; ++k) EXPECT_LE(byteps_seconds(hosts, k, 1e9, 1e9), byteps_seconds(hosts, k - 1, 1e9, 1e9));
  }
}

TEST(Servers, AQueueIsEmptyForOneAndFullForMany) {
  const Asynchronous one = asynchronous(1, 10, 2);
  EXPECT_DOUBLE_EQ(one.cycle_s, 12);
  EXPECT_DOUBLE_EQ(one.waiting_s, 0);
  EXPECT_DOUBLE_EQ(one.updates_per_s, 1 / 12.0);
  const Asynchronous many = asynchronous(100, 10, 2);
  EXPECT_DOUBLE_EQ(many.updates_per_s, 0.5);
  EXPECT_DOUBLE_EQ(many.cycle_s, 200);
  EXPECT_DOUBLE_EQ(many.staleness, 99);
  EXPECT_DOUBLE_EQ(asynchronous(7, 10, 0).updates_per_s, 0.7);
}

/// Workers that come to one server in the order of their arrival; times away are exponential, visits of one length.
double played_rate(int workers, double away, double visit) {
  RandomStream random(7, Purpose::test, 0, 0);
  std::vector<double> arrival(static_cast<std::size_t>(workers));
  const auto draw = [&] { return -away * std::log(1 - random.uniform_double()); };
  for (double& each : arrival) each = draw();
  double free = 0;
  constexpr int kVisits = 200000;
  for (int i = 0; i < kVisits; ++i) {
    const auto next = std::ranges::min_element(arrival);
    free = std::max(free, *next) + visit;
    *next = free + draw();
  }
  return kVisits / free;
}

TEST(Servers, AQueueIsAsLongAsItsGame) {
  for (const int workers : {2, 4, 6, 10}) {
    const double played = played_rate(workers, 10, 2);
    EXPECT_NEAR(asynchronous(workers, 10, 2).updates_per_s, played, 0.05 * played) << workers;
  }
}

TEST(Stragglers, ExpectedMaximaAreTheKnownOnes) {
  EXPECT_DOUBLE_EQ(expected_maximum({}, 1000), 1);
  const Jitter tail{.distribution = "exponential_tail", .tail = 0.2};
  EXPECT_DOUBLE_EQ(expected_maximum(tail, 1), 1);
  EXPECT_DOUBLE_EQ(expected_maximum(tail, 4), 0.8 + 0.2 * (1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0));
  EXPECT_NEAR(expected_maximum(tail, 5000), 0.8 + 0.2 * (std::log(5000) + 0.5772156649 + 1e-4), 1e-7);
  // Gamma(1) is exponential; Gamma(10⁴) nearly normal, whose maximum of 100 is 2.5076 deviations above its mean.
  EXPECT_NEAR(expected_maximum({.distribution = "gamma", .shape = 1}, 8), 2.7178571, 2e-3);
  EXPECT_NEAR(expected_maximum({.distribution = "gamma", .shape = 1e4}, 100), 1.025076, 3e-4);
  EXPECT_DOUBLE_EQ(expected_maximum({.distribution = "gamma"}, 1), 1);
}

TEST(Stragglers, RefuseWhatIsNoDistribution) {
  EXPECT_THAT(message_of<ConfigError>([] { expected_maximum({.distribution = "gama"}, 2); }), testing::HasSubstr("gamma"));
  EXPECT_THROW(expected_maximum({.distribution = "gamma", .shape = 0}, 2), ConfigError);
  EXPECT_THROW(expected_maximum({.distribution = "exponential_tail", .tail = 2}, 2), ConfigError);
}

TEST(Goodput, TheBestIntervalIsYoungsForRareFailures) {
  const Failures rare{.mtbf_s = 1e9, .devices = 1000, .checkpoint_s = 10, .restart_s = 60};
  const double best = best_interval(rare), young = std::sqrt(2 * 10 * 1e6);
  EXPECT_NEAR(best, young, 0.01 * young);
  const Goodput good = goodput(rare);
  EXPECT_DOUBLE_EQ(good.interval_s, best);
  EXPECT_NEAR(good.share, 1 - std::sqrt(2 * 10 / 1e6) - 60 / 1e6, 1e-4);
  for (const double factor : {0.5, 2.0}) {
    Failures other = rare;
    other.interval_s = factor * best;
    EXPECT_LT(goodput(other).share, good.share);
  }
}

TEST(Goodput, OfNoFailuresIsWhatCheckpointsLeave) {
  EXPECT_DOUBLE_EQ(goodput({}).share, 1);
  EXPECT_DOUBLE_EQ(goodput({.checkpoint_s = 10, .interval_s = 90}).share, 0.9);
  EXPECT_THROW(goodput({.mtbf_s = -1}), ConfigError);
}

/// Segments of work with failures by chance: the share of the clock that counts.
double played_share(double mtbf, double checkpoint, double restart, double interval) {
  RandomStream random(11, Purpose::test, 0, 0);
  const auto failure = [&] { return -mtbf * std::log(1 - random.uniform_double()); };
  double clock = 0, next = failure();
  constexpr int kSegments = 20000;
  for (int done = 0; done < kSegments;) {
    if (next >= interval + checkpoint) {
      clock += interval + checkpoint, next -= interval + checkpoint, ++done;
      continue;
    }
    clock += next;
    for (next = failure(); next < restart; next = failure()) clock += next;  // a restart may fail as well
    clock += restart, next -= restart;
  }
  return kSegments * interval / clock;
}

TEST(Goodput, IsThatOfItsGame) {
  const Failures often{.mtbf_s = 1000, .devices = 10, .checkpoint_s = 5, .restart_s = 20, .interval_s = 30};
  EXPECT_NEAR(goodput(often).share, played_share(100, 5, 20, 30), 0.01);
  EXPECT_NEAR(goodput(often).lost_s, 17.5, 1.1) << "about half of a segment";
}

}  // namespace
}  // namespace paceline::perf
