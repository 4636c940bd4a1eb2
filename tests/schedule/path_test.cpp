// The critical path against the costs that the literature prints (times: moved elements over B, rounds times α).
#include "paceline/schedule/path.h"

#include <gtest/gtest.h>

namespace paceline::schedule {
namespace {

constexpr std::int64_t n = 1 << 12;

Path path(std::string_view key, Problem problem) {
  problem.count = n;
  return critical_path(algorithm_for(key, problem.collective).make, problem);
}

void expect_path(const Path& path, int rounds, std::int64_t moved, std::int64_t reduced, const char* what) {
  EXPECT_EQ(path.rounds, rounds) << what;
  EXPECT_EQ(path.moved, moved) << what;
  EXPECT_EQ(path.reduced, reduced) << what;
}

TEST(CriticalPath, OfRingsAndButterflies) {
  expect_path(path("ring", {.size = 8}), 14, 2 * 7 * n / 8, 7 * n / 8, "ring: 2(p−1)α + 2(p−1)/p·n/B + (p−1)/p·n·g");
  expect_path(path("torus2d", {.size = 8}), 2 * (2 + 4 - 2), 2 * 7 * n / 8, 7 * n / 8, "2-D torus: 2(d₁+d₂−2)α + 2(p−1)/p·n/B");
  expect_path(path("recursive_doubling", {.size = 8}), 3, 3 * n, 3 * n, "recursive doubling: lg p (α + n/B + n·g)");
  expect_path(path("butterfly", {.size = 8}), 6, 2 * 7 * n / 8, 7 * n / 8, "butterfly: 2 lg p·α + 2(p−1)/p·n/B + (p−1)/p·n·g");
  // Not a power of two: a buffer more at each end. The members that halve and double are p' = 4 of the 5.
  expect_path(path("butterfly", {.size = 5}), 2 * 2 + 2, 2 * 3 * n / 4 + 2 * n, 3 * n / 4 + n, "(2⌊lg p⌋+2)α + (2(p'−1)/p'+2)·n/B");
}

TEST(CriticalPath, OfTreesGoesUpAndThenDown) {
  for (const int size : {4, 5, 8}) {
    const int levels = size == 4 ? 2 : 3;
    expect_path(path("tree", {.size = size}), 2 * levels, 2 * levels * n, levels * n, "MST: 2⌈lg p⌉(α + n/B) + ⌈lg p⌉·n·g");
    expect_path(path("tree", {.collective = Collective::broadcast, .size = size}), levels, levels * n, 0, "⌈lg p⌉(α + n/B)");
  }
  // In chunks the root receives and sends at the same time.
  EXPECT_LT(path("tree", {.size = 8, .chunks = 16}).moved, 2 * 3 * n);
}

TEST(CriticalPath, OfAChainFillsAndEmptiesIt) {
  const Path chain = path("ring", {.collective = Collective::broadcast, .size = 5, .chunks = 8});
  expect_path(chain, 8 + 5 - 2, (8 + 5 - 2) * n / 8, 0, "(C+p−2)(α + n/(C·B))");
}

TEST(CriticalPath, OfTwoLevels) {
  const int k = 4, hosts = 2;
  expect_path(path("hierarchical", {.size = k * hosts, .per_host = k}), 2 + 2 * (hosts - 1), 2 * 3 * n / 4 + 2 * n / 2 / k,
              3 * n / 4 + n / 2 / k, "2(k−1)/k·n/B_i + AR(N, n/k)");
}

// What the number of rounds hides: all the others' messages come, or go, one behind the other.
TEST(CriticalPath, CountsMessagesThatQueue) {
  EXPECT_EQ(path("ring", {.size = 8}).queued, 0);
  EXPECT_EQ(path("direct", {.size = 8}).queued, 2 * 6);
  EXPECT_EQ(path("direct", {.collective = Collective::broadcast, .size = 8}), (Path{.rounds = 1, .queued = 6, .moved = 7 * n}));
  EXPECT_EQ(path("direct", {.collective = Collective::reduce, .size = 8}),
            (Path{.rounds = 1, .queued = 6, .moved = 7 * n, .reduced = 7 * n, .held = 6 * n}));
}

}  // namespace
}  // namespace paceline::schedule
