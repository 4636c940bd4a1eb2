#include "paceline/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

namespace paceline {
namespace {

// Known answers of Random123's philox4x32-10.
TEST(Random, PhiloxMatchesThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, AStreamIsNamedByAllFourOfItsCoordinates) {
  std::set<std::uint64_t> first;
  for (std::uint64_t seed : {0, 1})
    for (Purpose purpose : {Purpose::shuffle, Purpose::augment})
      for (std::uint64_t rank : {0, 1, 2})
        for (std::uint64_t epoch : {0, 1, 2}) first.insert(RandomStream(seed, purpose, rank, epoch).next_u64());
  EXPECT_EQ(first.size(), 2u * 2 * 3 * 3);
  EXPECT_EQ(RandomStream(7, Purpose::init, 3, 5).next_u64(), RandomStream(7, Purpose::init, 3, 5).next_u64());
}

TEST(Random, SeekReachesAnyDraw) {
  RandomStream whole(1, Purpose::test);
  std::vector<std::uint32_t> draws(37);
  for (auto& draw : draws) draw = whole.next_u32();
  for (std::uint64_t position : {0, 1, 4, 7, 36}) {
    RandomStream jumped(1, Purpose::test);
    jumped.seek(position);
    EXPECT_EQ(jumped.next_u32(), draws[position]);
    EXPECT_EQ(jumped.position(), position + 1);
  }
}

TEST(Random, MomentsAreThoseOfTheDistribution) {
  RandomStream stream(3, Purpose::test);
  const int n = 200000;
  double uniform_sum = 0, normal_sum = 0, normal_squares = 0;
  for (int i = 0; i < n; ++i) {
    uniform_sum += stream.uniform();
    const double x = stream.normal();
    normal_sum += x;
    normal_squares += x * x;
  }
  EXPECT_NEAR(uniform_sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(normal_sum / n, 0.0, 5 / std::sqrt(n));
  EXPECT_NEAR(normal_squares / n, 1.0, 5 * std::sqrt(2.0 / n));
}

TEST(Random, BelowStaysBelowAndReachesEveryValue) {
  RandomStream stream(4, Purpose::test);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen.at(stream.below(7));
  for (int count : seen) EXPECT_NEAR(count, 1000, 200);
}

TEST(Random, ShuffleIsAPermutation) {
  std::vector<int> items(1000);
  std::iota(items.begin(), items.end(), 0);
  RandomStream stream(5, Purpose::shuffle);
  stream.shuffle(std::span(items));
  EXPECT_NE(items[0] + items[1] + items[2], 3);
  EXPECT_EQ(std::set<int>(items.begin(), items.end()).size(), 1000u);
}

}  // namespace
}  // namespace paceline
