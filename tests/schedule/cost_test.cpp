// What a collective costs where links inside a host and between hosts differ.
#include "paceline/schedule/cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace paceline::schedule {
namespace {

constexpr Link kMemory{.alpha_s = 1e-6, .gap_s = 1e-7, .bytes_per_s = 20e9}, kNetwork{.alpha_s = 30e-6, .gap_s = 5e-6, .bytes_per_s = 1e9};
constexpr std::int64_t n = 1 << 20;

Costs two_classes(int per_host) { return {.inside = kMemory, .between = kNetwork, .reduce_s_per_byte = 0.05e-9, .per_host = per_host}; }

double time_of(const Costs& costs, std::string_view key, const Problem& problem) {
  return predict(costs, algorithm_for(key, problem.collective).make, problem, 4);
}

// One class: the terms of the formulas in the literature, rounds·α + queued·gap + moved/B + reduced·g + held·h.
TEST(Cost, OfOneClassIsTheCriticalPathTimesItsCosts) {
  const Costs costs = Costs::uniform(kNetwork, 0.05e-9);
  for (const auto& row : algorithms())
    for (const Collective collective : row.make.offers) {
      const Problem problem{.collective = collective, .size = 6, .count = 6 * 32, .per_host = 2, .chunks = 4};
      const Path path = critical_path(row.make, problem);
      const auto bytes = [](std::int64_t elements) { return static_cast<double>(elements) * 4; };
      EXPECT_NEAR(time_of(costs, row.key, problem),
                  path.rounds * 30e-6 + static_cast<double>(path.queued) * 5e-6 + bytes(path.moved) / 1e9 + bytes(path.reduced) * 0.05e-9 +
                      bytes(path.held) * 0.1e-9,
                  1e-12)
          << row.key << " " << name_of(collective);
    }
}

// p ranks on one host: a ring of p − 1 rounds each way, all inside.
TEST(Cost, WithinAHostIsThatOfItsLinks) {
  const Problem ring{.size = 4, .count = n};
  const double bytes = n / 4 * 4, once = 1e-6 + bytes / 20e9;
  EXPECT_NEAR(time_of(two_classes(4), "ring", ring), 6 * once + 3 * bytes * 0.05e-9, 1e-9);
  EXPECT_NEAR(time_of(two_classes(1), "ring", ring), 6 * (30e-6 + bytes / 1e9) + 3 * bytes * 0.05e-9, 1e-9);
}

// 2(k−1)/k·n/B_inside + 2(H−1)/H·n/B_between, since the k ranks of a host share its link.
TEST(Cost, OfTwoLevels) {
  const int k = 4, hosts = 2;
  const Problem problem{.size = k * hosts, .count = n, .per_host = k};
  const double whole = n * 4, inside = 2 * (1e-6 + 2 * 1e-7 + 3 * whole / k / 20e9), across = 2 * (30e-6 + whole / 2 / 1e9);
  const double added = (3 * whole / k + whole / k / 2) * 0.05e-9, held = 2 * whole / k * 0.1e-9;
  EXPECT_NEAR(time_of(two_classes(k), "hierarchical", problem), inside + across + added + held, 1e-9);
}

// What a host's ranks send leaves through one link: a butterfly of 8 ranks on two hosts sends whole buffers across.
TEST(Cost, TheRanksOfAHostShareItsLink) {
  const Costs costs = two_classes(4);
  const Problem problem{.size = 8, .count = n, .per_host = 4};
  EXPECT_GT(time_of(costs, "butterfly", problem), 4.0 * n * 4 / 1e9);
  EXPECT_LT(time_of(costs, "hierarchical", problem), 1.25 * n * 4 / 1e9);
  EXPECT_EQ(cheapest(costs, problem, 4), "hierarchical");
}

// While one chunk crosses, the next is reduced inside.
TEST(Cost, ChunksOverlapMemoryWithTheNetwork) {
  Costs costs = two_classes(4);
  costs.inside.bytes_per_s = 2e9;
  Problem problem{.size = 8, .count = n, .per_host = 4};
  const double at_once = time_of(costs, "hierarchical", problem);
  problem.chunks = 8;
  EXPECT_LT(time_of(costs, "hierarchical", problem), 0.8 * at_once);
}

TEST(Cost, EveryAlgorithmSaysIntoHowManyChunksItIsCut) {
  for (const auto& row : algorithms())
    for (const Collective collective : row.make.offers)
      for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{4}, std::int64_t{1} << 20, std::int64_t{1} << 34})
        for (const int per_host : {1, 2, 4, 8})
          EXPECT_GE(row.make.chunks({.collective = collective, .size = 8, .count = bytes / 4, .per_host = per_host}, bytes), 1) << row.key;
  const Algorithm& hierarchical = algorithm_for("hierarchical", Collective::allreduce).make;
  const Problem problem{.size = 8, .count = 4 << 20, .per_host = 4};
  EXPECT_EQ(hierarchical.chunks(problem, 16 << 20), 4) << "1 MiB a rank";
}

// One meeting where there would be two, for more bytes and additions.
TEST(Cost, AShortSumIsOneRound) {
  const Costs costs = two_classes(4);
  const Algorithm& direct = algorithm_for("direct", Collective::allreduce).make;
  const Problem problem = direct.sized({.size = 4, .count = 128, .per_host = 4}, 512, /*shares_memory=*/true);
  const double others = 3 * 512;
  EXPECT_NEAR(time_of(costs, "direct", problem), 1e-6 + 2 * 1e-7 + others / 20e9 + others * (0.05e-9 + 0.1e-9), 1e-12);
}

TEST(Cost, SumsAreShortInSharedMemoryOfOneHost) {
  const auto is_short = [](Collective collective, int per_host, std::int64_t bytes, bool shares_memory) {
    const Problem problem{.collective = collective, .size = 4, .count = bytes, .per_host = per_host};
    return algorithm_for("direct", collective).make.sized(problem, bytes, shares_memory).short_sum;
  };
  for (const Collective collective : kCollectives)
    EXPECT_EQ(is_short(collective, 4, 512, true), collective == Collective::allreduce || collective == Collective::reduce)
        << name_of(collective);
  EXPECT_FALSE(is_short(Collective::allreduce, 4, 513, true));
  EXPECT_FALSE(is_short(Collective::allreduce, 2, 512, true));
  EXPECT_FALSE(is_short(Collective::allreduce, 4, 512, false));
}

TEST(Cost, TheCheapestIsTheFirstOfThoseThatCostTheSame) {
  const auto chosen = [](double factor) {
    return cheapest(Collective::all_to_all, [&](const auto& row) { return row.key == "ring" ? factor : 1.0; }).key;
  };
  EXPECT_EQ(chosen(1 - 1e-12), "direct") << "rounding errors may differ between ranks";
  EXPECT_EQ(chosen(0.5), "ring");
  EXPECT_EQ(chosen(2), "direct");
  EXPECT_TRUE(
      cheapest(Collective::barrier, [](const auto& row) { return row.key == "butterfly" ? 0.0 : 1.0; }).make.offer(Collective::barrier))
      << "only what offers the collective is asked";
}

TEST(Cost, AutoIsSettledInSharedMemoryAcrossFullHostsAndForBarriers) {
  const auto by = [](Collective collective, int per_host, bool shares_memory) {
    return settled({.collective = collective, .size = 4, .per_host = per_host}, shares_memory);
  };
  for (const Collective collective : kCollectives) EXPECT_EQ(by(collective, 4, true), "direct") << name_of(collective);
  for (const int per_host : {2, 3, 4}) EXPECT_EQ(by(Collective::allreduce, per_host, false), "hierarchical");
  EXPECT_EQ(by(Collective::allreduce, 1, true), "");
  EXPECT_EQ(by(Collective::all_gather, 2, true), "");
  EXPECT_EQ(by(Collective::barrier, 2, true), "recursive_doubling");
}

TEST(Cost, OneAlgorithmRunsAllOfAHostInItsMemory) {
  for (const auto& row : algorithms()) EXPECT_EQ(runs_in_shared_memory(row.key), row.key == "direct") << row.key;
  EXPECT_TRUE(runs_in_shared_memory("auto"));
  EXPECT_THROW(runs_in_shared_memory("rings"), ConfigError);
}

TEST(Cost, WhatIsNotOfferedIsLeftToARing) {
  for (const auto& row : algorithms())
    for (const Collective collective : kCollectives)
      EXPECT_EQ(configured_for(row.key, collective), row.make.offer(collective) ? row.key : "ring")
          << row.key << ' ' << name_of(collective);
}

}  // namespace
}  // namespace paceline::schedule
