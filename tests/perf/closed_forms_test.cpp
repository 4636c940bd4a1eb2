// Closed forms: the slides' by hand, the literature's against the costs of the lists of steps.
#include "paceline/perf/closed_forms.h"

#include <gtest/gtest.h>

#include <cmath>

namespace paceline::perf {
namespace {

constexpr double kBytes = 1e8;

Interconnect interconnect(Topology topology, std::int64_t ranks, std::vector<std::int64_t> sides = {}) {
  return {.topology = topology, .ranks = ranks, .sides = std::move(sides), .alpha_s = 2e-6, .alpha3_s = 6e-6, .bytes_per_s = 25e9};
}

TEST(Slides, CostsOfAnAllreduce) {
  const double wire = kBytes / 25e9;
  EXPECT_DOUBLE_EQ(allreduce_seconds(Method::mst, interconnect(Topology::star, 1000), kBytes), 20 * (8e-6 + wire));
  EXPECT_DOUBLE_EQ(allreduce_seconds(Method::mst, interconnect(Topology::mesh, 1000, {25, 40}), kBytes), 2 * (5 + 6) * (8e-6 + wire));
  EXPECT_DOUBLE_EQ(allreduce_seconds(Method::bkt, interconnect(Topology::star, 1000), kBytes), 2000 * 2e-6 + 2 * 0.999 * wire);
  EXPECT_DOUBLE_EQ(allreduce_seconds(Method::bkt, interconnect(Topology::mesh, 1000, {25, 40}), kBytes), 2 * 65 * 2e-6 + 2 * 0.999 * wire);
  EXPECT_DOUBLE_EQ(allreduce_seconds(Method::bkt, interconnect(Topology::torus, 1000, {25, 40}), kBytes), 2 * 63 * 2e-6 + 2 * 0.999 * wire);
  for (const Method method : kMethods) EXPECT_EQ(allreduce_seconds(method, interconnect(Topology::star, 1), kBytes), 0);
}

TEST(Slides, TheInterconnectComesFromTheCluster) {
  Cluster cluster = find_cluster("h100");
  cluster.oversubscription = 2;
  const Interconnect tree = interconnect_of(cluster, Topology::fat_tree, 1024), star = interconnect_of(cluster, Topology::star, 1024);
  EXPECT_DOUBLE_EQ(star.bytes_per_s, 50e9) << "eight rails of 400 Gb/s for eight devices";
  EXPECT_DOUBLE_EQ(tree.bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(star.alpha3_s, 3 * star.alpha_s);
  cluster.topology = Topology::mesh, cluster.sides = {2, 512};
  EXPECT_EQ(interconnect_of(cluster, Topology::mesh, 1024).sides, (std::vector<std::int64_t>{2, 512}));
  EXPECT_EQ(interconnect_of(cluster, Topology::mesh, 256).sides, (std::vector<std::int64_t>{16, 16}));
  EXPECT_DOUBLE_EQ(interconnect_of(find_cluster("laptop"), Topology::star, 4).bytes_per_s, 10e9) << "one host: its own links";
}

double by_steps(const schedule::Costs& costs, std::string_view algorithm, std::int64_t ranks, std::int64_t elements) {
  const schedule::Problem problem{.size = static_cast<int>(ranks), .count = elements, .per_host = costs.per_host};
  return schedule::predict(costs, schedule::algorithm_for(algorithm, schedule::Collective::allreduce).make, problem, 4);
}

class ClosedForm : public testing::TestWithParam<std::string> {};

TEST_P(ClosedForm, IsWhatTheStepsCost) {
  schedule::Costs costs = schedule::Costs::uniform({.alpha_s = 5e-6, .gap_s = 0, .bytes_per_s = 3e9}, 0.07e-9);
  costs.held_s_per_byte = 0;
  for (const std::int64_t ranks : {2, 3, 4, 6, 8, 12, 16, 24, 64}) {
    const std::int64_t elements = ranks * 64 * 9;
    const double steps = by_steps(costs, GetParam(), ranks, elements);
    EXPECT_NEAR(*closed_form(GetParam(), costs, ranks, 4.0 * static_cast<double>(elements)), steps, 1e-9 * steps) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ClosedForm, testing::Values("ring", "bucket", "tree", "recursive_doubling", "butterfly", "torus2d", "direct"),
                         [](const auto& algorithm) { return algorithm.param; });

TEST(TwoLevels, AreWhatTheStepsCost) {
  schedule::Costs costs{.inside = {.alpha_s = 1e-6, .gap_s = 0, .bytes_per_s = 20e9},
                        .between = {.alpha_s = 30e-6, .gap_s = 0, .bytes_per_s = 1e9},
                        .reduce_s_per_byte = 0.07e-9,
                        .held_s_per_byte = 0,
                        .per_host = 4};
  for (const std::int64_t hosts : {1, 2, 3, 8}) {
    const std::int64_t elements = hosts * 4 * 720;
    const double steps = by_steps(costs, "hierarchical", hosts * 4, elements);
    EXPECT_NEAR(*closed_form("hierarchical", costs, hosts * 4, 4.0 * static_cast<double>(elements)), steps, 1e-9 * steps) << hosts;
  }
}

// The slides' BKT counts P rounds where a ring has P − 1; their MST is the tree but for α₃.
TEST(Slides, AreTheScheduledAlgorithmsButForTheirLatency) {
  const Cluster cluster = find_cluster("skylake");
  schedule::Costs costs = costs_of(cluster);
  costs.reduce_s_per_byte = costs.held_s_per_byte = 0;
  Interconnect net = interconnect_of(cluster, Topology::star, 50);
  const std::int64_t elements = 50 * 1000;
  EXPECT_NEAR(allreduce_seconds(Method::bkt, net, 4.0 * elements) - 2 * net.alpha_s, by_steps(costs, "bucket", 50, elements), 1e-12);
  net.alpha3_s = 0;
  EXPECT_NEAR(allreduce_seconds(Method::mst, net, 4.0 * elements), by_steps(costs, "tree", 50, elements), 1e-12);
}

TEST(ClosedForm, IsUnknownWhereTheLiteratureHasNone) {
  EXPECT_FALSE(closed_form("auto", costs_of(find_cluster("skylake")), 8, 1e6).has_value());
}

}  // namespace
}  // namespace paceline::perf
