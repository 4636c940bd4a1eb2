// Costs of collectives by ranks and length: kept rounds against the lists of steps, and where the mesh lies.
#include "paceline/perf/collective_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "paceline/perf/closed_forms.h"
#include "paceline/perf/placement.h"
#include "paceline/perf/step_cost.h"
#include "tests/perf/hand_programs.h"

namespace paceline::perf {
namespace {

using schedule::Collective;
using Axis = schedule::Action::Axis;

schedule::Costs classes(int per_host) {
  return {.inside = {.alpha_s = 1e-6, .gap_s = 1e-7, .bytes_per_s = 20e9},
          .between = {.alpha_s = 30e-6, .gap_s = 5e-6, .bytes_per_s = 1e9},
          .reduce_s_per_byte = 0.05e-9,
          .held_s_per_byte = 0.1e-9,
          .per_host = per_host};
}

double by_lists(const schedule::Costs& costs, const Entry<schedule::Algorithm>& row, Collective collective, int size, std::int64_t count) {
  schedule::Problem problem{.collective = collective, .size = size, .count = count, .per_host = costs.per_host};
  problem = row.make.sized(problem, count * 4, /*shares_memory=*/true);
  return schedule::predict(costs, row.make, problem, 4);
}

TEST(CollectiveCosts, AreThoseOfTheLists) {
  CollectiveCosts kept;
  for (const auto& row : schedule::algorithms())
    for (const Collective collective : row.make.offers)
      for (const int per_host : {1, 4})
        for (const int size : {4, 6, 12, 32, 48}) {
          const std::int64_t count = 1 << 20;
          const std::int64_t whole = count / size * size;
          const schedule::Costs costs = classes(per_host);
          const double lists = by_lists(costs, row, collective, size, whole);
          const CollectiveCost& cost = kept.of(costs, collective, std::string(row.key), size, static_cast<double>(whole) * 4);
          EXPECT_EQ(cost.algorithm, row.key);
          EXPECT_NEAR(cost.seconds, lists, 1e-3 * lists) << row.key << " " << name_of(collective) << " " << size << " by " << per_host;
        }
}

// The formulas of the literature for n bytes among p ranks that are hosts of their own.
TEST(CollectiveCosts, AreTheLiteraturesFormulas) {
  constexpr double kAlpha = 5e-6, kBandwidth = 2e9, kReduce = 0.1e-9, kBytes = 64e6;
  schedule::Costs costs = schedule::Costs::uniform({.alpha_s = kAlpha, .gap_s = 0, .bytes_per_s = kBandwidth}, kReduce);
  costs.held_s_per_byte = 0;
  CollectiveCosts kept;
  for (const int ranks : {8, 64, 256}) {
    const double p = ranks, share = (p - 1) / p * kBytes, rounds = p - 1, lg = std::log2(p);
    const auto expect = [&](Collective collective, const char* algorithm, double seconds, double within = 1e-9) {
      EXPECT_NEAR(kept.of(costs, collective, algorithm, ranks, kBytes).seconds, seconds, within * seconds)
          << algorithm << " " << name_of(collective) << " of " << ranks;
    };
    expect(Collective::reduce_scatter, "ring", rounds * kAlpha + share * (1 / kBandwidth + kReduce));
    expect(Collective::all_gather, "ring", rounds * kAlpha + share / kBandwidth);
    expect(Collective::allreduce, "ring", 2 * rounds * kAlpha + share * (2 / kBandwidth + kReduce));
    expect(Collective::allreduce, "recursive_doubling", lg * (kAlpha + kBytes / kBandwidth + kBytes * kReduce));
    expect(Collective::allreduce, "butterfly", 2 * lg * kAlpha + share * (2 / kBandwidth + kReduce));
    expect(Collective::all_to_all, "ring", rounds * (kAlpha + kBytes / p / kBandwidth));
    // 2·log₂N·α + 2n/B, and as much again for each chunk that fills the tree as it has levels; NCCL's trees reach 92% of the bandwidth.
    const CollectiveCost& trees = kept.of(costs, Collective::allreduce, "double_binary_tree", ranks, kBytes);
    EXPECT_NEAR(closed_form("double_binary_tree", costs, ranks, kBytes).value(), trees.seconds, 0.2 * trees.seconds) << ranks;
    const double fill = 1 + 2 * lg / 64;
    expect(Collective::allreduce, "double_binary_tree", (2 * kBytes / kBandwidth + kBytes * kReduce) * fill, 0.15);
  }
}

TEST(CollectiveCosts, KnowShortSums) {
  CollectiveCosts kept;
  const schedule::Costs costs = classes(4);
  for (const Collective collective : {Collective::allreduce, Collective::reduce}) {
    const auto& direct = schedule::algorithm_for("direct", collective);
    for (const std::int64_t count : {128, 132}) {
      const double seconds = by_lists(costs, direct, collective, 4, count);
      EXPECT_NEAR(kept.of(costs, collective, "auto", 4, static_cast<double>(count) * 4).seconds, seconds, 1e-9 * seconds) << count;
    }
    EXPECT_LT(1.5 * kept.of(costs, collective, "auto", 4, 512).seconds, kept.of(costs, collective, "auto", 4, 528).seconds);
  }
}

TEST(CollectiveCosts, OfOneRankOrNothingAreNone) {
  CollectiveCosts kept;
  EXPECT_EQ(kept.of(classes(1), Collective::allreduce, "ring", 1, 100).seconds, 0);
  EXPECT_EQ(kept.of(classes(1), Collective::allreduce, "ring", 4, 0).seconds, 0);
  EXPECT_GT(kept.of(classes(1), Collective::barrier, "auto", 4, 0).seconds, 0);
}

TEST(CollectiveCosts, AutoIsWhatCommTakes) {
  CollectiveCosts kept;
  const auto taken = [&](int per_host, Collective collective, int size, double bytes) {
    return std::string(kept.of(classes(per_host), collective, "auto", size, bytes).algorithm);
  };
  EXPECT_EQ(taken(4, Collective::allreduce, 4, 1e6), "direct") << "one host";
  EXPECT_EQ(taken(4, Collective::allreduce, 8, 1e6), "hierarchical");
  EXPECT_EQ(taken(1, Collective::barrier, 8, 0), "recursive_doubling");
  for (const double bytes : {64.0, 4096.0, 1e6, 64e6}) {
    const schedule::Problem problem{.size = 8, .count = static_cast<std::int64_t>(bytes) / 4};
    EXPECT_EQ(taken(1, Collective::allreduce, 8, bytes), schedule::cheapest(classes(1), problem, 4)) << bytes;
  }
  EXPECT_EQ(kept.of(classes(1), Collective::all_to_all, "torus2d", 8, 1e6).algorithm, "ring") << "which torus2d does not offer";
}

TEST(CollectiveCosts, MeasurementsGoBeforeFormulas) {
  Cluster cluster = even_cluster(4, 1, 10);
  const auto times = [](const char* algorithm, double seconds) {
    return CollectiveTimes{.collective = "allreduce", .algorithm = algorithm, .ranks = 4, .per_host = 1, .points = {{100, seconds}}};
  };
  cluster.collectives = {times("ring", 7), times("auto", 5)};
  CollectiveCosts kept(cluster);
  EXPECT_DOUBLE_EQ(kept.of(classes(1), Collective::allreduce, "ring", 4, 100).seconds, 7);
  EXPECT_DOUBLE_EQ(kept.of(classes(1), Collective::allreduce, "auto", 4, 100).seconds, 5);
  EXPECT_DOUBLE_EQ(kept.of(classes(1), Collective::allreduce, "ring", 4, 300).seconds, 21);
  EXPECT_LT(kept.of(classes(1), Collective::allreduce, "tree", 4, 100).seconds, 1) << "which nobody measured";
  EXPECT_LT(kept.of(classes(1), Collective::allreduce, "ring", 3, 100).seconds, 1);
}

TEST(CollectiveCosts, ThatShareRoundsDifferByTheirLinks) {
  Cluster measured = even_cluster(64, 1, 10);
  measured.collectives = {{.collective = "allreduce", .algorithm = "ring", .ranks = 64, .per_host = 1, .points = {{4e6, 7}}}};
  CollectiveCosts first(measured), second(even_cluster(64, 1, 10), first), alone;
  schedule::Costs faster = classes(1);
  faster.between.bytes_per_s *= 2;
  for (const char* algorithm : {"ring", "tree"}) {
    first.of(classes(1), Collective::allreduce, algorithm, 64, 4e6);
    const double seconds = second.of(faster, Collective::allreduce, algorithm, 64, 4e6).seconds;
    EXPECT_EQ(seconds, alone.of(faster, Collective::allreduce, algorithm, 64, 4e6).seconds) << algorithm;
    EXPECT_LT(seconds, second.of(classes(1), Collective::allreduce, algorithm, 64, 4e6).seconds) << algorithm;
  }
}

/// A step that only waits for one allreduce of this many bytes.
StepCost exchanged(const Cluster& cluster, std::int64_t bytes) {
  const schedule::Program program = {exchange_of(schedule::Action::Exchange::allreduce, Axis::data, bytes / 4)};
  return cost_of({&program, 1}, {.data = 4}, HandTimes(), cluster);
}

TEST(CollectiveCosts, BeyondTheMeasuredSizesTheyAreLessSure) {
  Cluster cluster = even_cluster(4, 1, 10);
  cluster.collectives = {
      {.collective = "allreduce", .algorithm = "ring", .ranks = 4, .points = {{400, 4}, {4000, 10}}, .source = Source::measured}};
  const auto width = [](const StepCost& cost) { return (cost.high - cost.low) / cost.seconds / 2; };
  const StepCost within = exchanged(cluster, 1200), above = exchanged(cluster, 40000), below = exchanged(cluster, 40);
  EXPECT_NEAR(width(within), 0.05, 1e-9);
  EXPECT_TRUE(within.notes.empty());
  EXPECT_NEAR(width(above), 0.3, 1e-9);
  EXPECT_THAT(above.notes, testing::ElementsAre(testing::HasSubstr("40.0 kB")));
  EXPECT_NEAR(width(below), 0.3, 1e-9);
  EXPECT_THAT(below.notes, testing::ElementsAre(testing::AllOf(testing::HasSubstr("40 B"), testing::HasSubstr("400 B to 4.00 kB"))));
  cluster.between.bandwidth.source = Source::standard;
  EXPECT_NEAR(width(exchanged(cluster, 1200)), 0.05, 1e-9) << "whatever is known of the links";
  cluster.collectives[0].source = Source::spec;
  EXPECT_NEAR(width(exchanged(cluster, 1200)), 0.15, 1e-9);
  cluster.collectives.clear();
  EXPECT_NEAR(width(exchanged(cluster, 1200)), 0.3, 1e-9);
}

// 8 devices a host, each with a link of 100 B/s inside; the host has 4 rails of 10 B/s.
Cluster hosts_of_eight(std::int64_t hosts) {
  Cluster cluster = even_cluster(hosts, 1, 10);
  cluster.devices = 8, cluster.rails = 4;
  cluster.inside.bandwidth.value = 100;
  return cluster;
}

TEST(Placement, TensorRanksAreNeighboursAndStagesLieFarApart) {
  const Cluster cluster = hosts_of_eight(8);
  const Placement place(cluster, {.data = 4, .pipeline = 4, .tensor = 4});
  EXPECT_EQ(place.costs(Axis::tensor).per_host, 4);
  EXPECT_FALSE(place.crosses_hosts(Axis::tensor));
  EXPECT_EQ(place.costs(Axis::data).per_host, 2);
  EXPECT_DOUBLE_EQ(place.costs(Axis::data).between.bytes_per_s, 10) << "four groups share 40 B/s of a host";
  EXPECT_EQ(place.costs(Axis::pipeline).per_host, 1);
  EXPECT_DOUBLE_EQ(place.between_stages(0, 1).bytes_per_s, 5) << "eight ranks of the host send at once";
}

TEST(Placement, StagesInsideAHostUseItsLinks) {
  const Cluster cluster = hosts_of_eight(2);
  const Placement place(cluster, {.data = 4, .pipeline = 4, .tensor = 1});
  EXPECT_DOUBLE_EQ(place.between_stages(0, 1).bytes_per_s, 100);
  EXPECT_DOUBLE_EQ(place.between_stages(1, 2).bytes_per_s, 10) << "four ranks cross to the next host";
  EXPECT_FALSE(place.crosses_hosts(Axis::data));
}

TEST(Placement, AMessageAloneHasASharedWireToItself) {
  Cluster cluster = hosts_of_eight(2);
  cluster.inside.duplex = {1.25, Source::measured};
  const Placement place(cluster, {.data = 4, .pipeline = 4, .tensor = 1});
  EXPECT_DOUBLE_EQ(place.between_stages(0, 1).bytes_per_s, 160);
  EXPECT_DOUBLE_EQ(place.between_stages(1, 2).bytes_per_s, 10) << "another wire";
  EXPECT_DOUBLE_EQ(place.costs(Axis::data).inside.bytes_per_s, 100) << "collectives send and receive at once";
}

TEST(Placement, ADataAxisOfWholeHostsHasAllTheirRails) {
  Cluster cluster = hosts_of_eight(2);
  const Placement place(cluster, {.data = 16});
  EXPECT_EQ(place.costs(Axis::data).per_host, 8);
  EXPECT_DOUBLE_EQ(place.costs(Axis::data).between.bytes_per_s, 40);
  EXPECT_DOUBLE_EQ(place.to_neighbour(Axis::data, 1).bytes_per_s, 40) << "one rank of a host has its neighbour elsewhere";
  EXPECT_DOUBLE_EQ(place.to_neighbour(Axis::data, 8).bytes_per_s, 5);
  cluster.topology = Topology::fat_tree, cluster.oversubscription = 2;
  EXPECT_DOUBLE_EQ(Placement(cluster, {.data = 16}).costs(Axis::data).between.bytes_per_s, 20);
}

TEST(Placement, FarMessagesMeetOnAMesh) {
  Cluster cluster = find_cluster("skylake");
  const auto seconds = [&](Topology topology, const char* algorithm) {
    cluster.topology = topology;
    schedule::Action action = exchange_of(schedule::Action::Exchange::allreduce, Axis::data, 1 << 20);
    action.algorithm = algorithm;
    return CostModel(cluster).collective_seconds(action, {.data = 64});
  };
  for (const char* near : {"ring", "torus2d", "tree"})
    EXPECT_DOUBLE_EQ(seconds(Topology::mesh, near), seconds(Topology::star, near)) << near;
  EXPECT_GT(seconds(Topology::mesh, "butterfly"), 1.5 * seconds(Topology::star, "butterfly")) << "8 × 8: two messages share a wire";
  EXPECT_DOUBLE_EQ(seconds(Topology::torus, "butterfly"), seconds(Topology::star, "butterfly"));
  cluster.topology = Topology::mesh;
  EXPECT_DOUBLE_EQ(Placement(cluster, {.data = 1000}).contention(Axis::data), 10) << "25 × 40";
  cluster.sides = {10, 100};
  EXPECT_DOUBLE_EQ(Placement(cluster, {.data = 1000}).contention(Axis::data), 25);
}

TEST(CollectiveCosts, OfThousandsOfRanksAreMadeFromFewRounds) {
  const Cluster cluster = find_cluster("h100");
  const CostModel model(cluster);
  const schedule::ProgramSettings settings{.data = 1024};
  const auto seconds = [&](const char* algorithm) {
    schedule::Action action = exchange_of(schedule::Action::Exchange::allreduce, Axis::data, 32 << 20);
    action.algorithm = algorithm;
    return model.collective_seconds(action, settings);
  };
  const double bytes = 128 << 20, rails = 400e9, inside = 450e9, g = 3 / 3350e9;
  // 2(H−1) rounds across and two inside, but for the chunks of what overlaps.
  EXPECT_NEAR(seconds("ring"), 2 * 1023 * (5e-6 + bytes / 1024 / std::min(rails, inside)) + bytes * 1023 / 1024 * g, 1e-6);
  EXPECT_LT(seconds("hierarchical"), 0.6 * seconds("ring"));
  EXPECT_GT(seconds("hierarchical"), 2.0 * 127 / 128 * bytes / rails);
}

}  // namespace
}  // namespace paceline::perf
