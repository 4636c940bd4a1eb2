#include "paceline/sim/collective_play.h"

#include <gtest/gtest.h>

#include <numeric>

#include "jobs.h"

namespace paceline::sim {
namespace {

using schedule::Collective;

struct Case {
  const char* algorithm;
  Collective collective;
  int ranks, devices;
};
void PrintTo(const Case& of, std::ostream* out) { *out << of.algorithm << ' ' << name_of(of.collective) << ' ' << of.ranks; }

constexpr double kAlpha = 2e-6, kBytesPerS = 1e9;

Played played_on(const perf::Cluster& cluster, const Case& of, double bytes, const Faults& faults = {}, std::vector<double> arrivals = {}) {
  const ClusterMap layout(cluster, of.ranks, 1, 1, 0, 0, faults);
  const CollectiveLists lists(schedule::algorithm_for(of.algorithm, of.collective).make,
                              {.collective = of.collective, .size = of.ranks, .count = of.ranks * of.ranks * 16, .per_host = of.devices});
  std::vector<int> members(static_cast<std::size_t>(of.ranks));
  std::iota(members.begin(), members.end(), 0);
  arrivals.resize(members.size(), 0.0);
  return play(lists, layout, members, arrivals, bytes);
}

perf::Cluster cluster_of(const Case& of) {
  perf::Cluster cluster = hosts(of.ranks / of.devices, kAlpha, kBytesPerS, of.devices);
  cluster.inside.bandwidth.value = 5 * kBytesPerS;
  cluster.device.memory_bandwidth.value = 2e10;  // additions count
  return cluster;
}

class CollectivePlay : public testing::TestWithParam<Case> {};

TEST_P(CollectivePlay, TakesTheCriticalPathWhereAllRanksAreAlike) {
  const perf::Cluster cluster = cluster_of(GetParam());
  const auto& row = schedule::algorithm_for(GetParam().algorithm, GetParam().collective);
  const std::int64_t count = GetParam().ranks * GetParam().ranks * 16;
  const double expected =
      schedule::predict(perf::costs_of(cluster), row.make,
                        {.collective = GetParam().collective, .size = GetParam().ranks, .count = count, .per_host = GetParam().devices}, 4);
  EXPECT_NEAR(played_on(cluster, GetParam(), 4.0 * static_cast<double>(count)).seconds, expected, 1e-9 * expected);
}

INSTANTIATE_TEST_SUITE_P(, CollectivePlay,
                         testing::Values(Case{"ring", Collective::allreduce, 16, 1}, Case{"ring", Collective::reduce_scatter, 7, 1},
                                         Case{"ring", Collective::all_gather, 9, 1}, Case{"butterfly", Collective::allreduce, 16, 1},
                                         Case{"recursive_doubling", Collective::allreduce, 8, 1},
                                         Case{"direct", Collective::allreduce, 6, 1}, Case{"direct", Collective::all_to_all, 6, 1},
                                         Case{"hierarchical", Collective::allreduce, 16, 4}, Case{"ring", Collective::allreduce, 8, 4}));

TEST(CollectivePlayOf, ARingIsAsSlowAsItsSlowestHost) {
  const Case ring{"ring", Collective::allreduce, 8, 1};
  perf::Cluster cluster = hosts(8, 0, kBytesPerS);
  const double even = played_on(cluster, ring, 8e6).seconds;
  EXPECT_NEAR(even, 2 * 7.0 / 8 * 8e6 / kBytesPerS, 1e-12);
  EXPECT_NEAR(played_on(cluster, ring, 8e6, {.hosts = {{3, 10}}}).seconds, 10 * even, 1e-9 * even);
}

TEST(CollectivePlayOf, ATreeHardlyMindsASlowLeaf) {
  // The last rank of 8 is a leaf: it sends up once and receives once, so two of the six rounds are slow.
  const Case tree{"tree", Collective::allreduce, 8, 1};
  perf::Cluster cluster = hosts(8, 0, kBytesPerS);
  const double even = played_on(cluster, tree, 8e6).seconds, slow = played_on(cluster, tree, 8e6, {.hosts = {{7, 10}}}).seconds;
  EXPECT_NEAR(even, 6 * 8e6 / kBytesPerS, 1e-9);
  EXPECT_NEAR(slow, (4 + 2 * 10) * 8e6 / kBytesPerS, 1e-9);
}

TEST(CollectivePlayOf, WhatEarlyRanksCouldDoIsTakenOff) {
  // A broadcast through a tree whose last leaf is late: all the others are done, and one message is left. Late at the root, all are.
  const Case tree{"tree", Collective::broadcast, 8, 1};
  const perf::Cluster cluster = hosts(8, 0, kBytesPerS);
  std::vector<double> leaf(8, 0.0), root(8, 0.0);
  leaf[7] = 1, root[0] = 1;
  EXPECT_NEAR(played_on(cluster, tree, 8e6, {}, leaf).seconds, 8e6 / kBytesPerS, 1e-9);
  EXPECT_NEAR(played_on(cluster, tree, 8e6, {}, root).seconds, 3 * 8e6 / kBytesPerS, 1e-9);
}

TEST(CollectivePlayOf, SaysHowMuchOfItsLinksItTakes) {
  const Case ring{"ring", Collective::allreduce, 4, 1};
  perf::Cluster cluster = hosts(4, 0, kBytesPerS);
  const Played full = played_on(cluster, ring, 8e6);
  ASSERT_EQ(full.uses.size(), 8u);  // four hosts, in and out
  for (const Use& use : full.uses) EXPECT_NEAR(use.share, 1, 1e-9);
  cluster.between.latency.value = full.seconds / 6;  // as long again in all six rounds
  for (const Use& use : played_on(cluster, ring, 8e6).uses) EXPECT_NEAR(use.share, 0.5, 1e-9);
}

}  // namespace
}  // namespace paceline::sim
