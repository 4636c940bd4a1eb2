// Examples that show what a list looks like, what only some algorithms promise, and refusals.
#include "paceline/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedule/player.h"

namespace paceline::schedule {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Kind = Step::Kind;

Steps steps(std::string_view key, const Problem& problem) { return algorithm_for(key, problem.collective).make.steps(problem); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Three ranks, a buffer of 30: parts [0, 10), [10, 20), [20, 30). Rank 0 sends to 1 and hears from 2.
TEST(Ring, AllreduceOfThreeRanks) {
  const Steps expected = {
      {Kind::send, 1, {20, 30}, 0},     // part 2 sets out on its way round, to end complete at rank 2
      {Kind::reduce, 2, {10, 20}, 0},   // part 1 has come from rank 2: now of two ranks
      {Kind::send, 1, {10, 20}, 1},     // which goes on to rank 1, its owner
      {Kind::reduce, 2, {0, 10}, 1},    // part 0 is complete here, and the reduce-scatter done
      {Kind::send, 1, {0, 10}, 2},      // complete parts go round
      {Kind::receive, 2, {20, 30}, 2},  //
      {Kind::send, 1, {20, 30}, 3},     //
      {Kind::receive, 2, {10, 20}, 3},  //
  };
  EXPECT_EQ(steps("ring", {.rank = 0, .size = 3, .count = 30}), expected);
}

// Four ranks: 1 and 3 give to 0 and 2, then 2 to 0; and back. In two chunks the second follows the first at a round's distance.
TEST(Tree, AllreduceOfFourRanks) {
  const Steps root = {
      {Kind::reduce, 1, {0, 8}, 0},
      {Kind::reduce, 2, {0, 8}, 1},
      {Kind::send, 2, {0, 8}, 2},
      {Kind::send, 1, {0, 8}, 3},
  };
  const Steps inner = {
      {Kind::reduce, 3, {0, 8}, 0},
      {Kind::send, 0, {0, 8}, 1},
      {Kind::receive, 0, {0, 8}, 2},
      {Kind::send, 3, {0, 8}, 3},
  };
  const Steps leaf = {{Kind::send, 2, {0, 8}, 0}, {Kind::receive, 2, {0, 8}, 3}};
  EXPECT_EQ(steps("tree", {.rank = 0, .size = 4, .count = 8}), root);
  EXPECT_EQ(steps("tree", {.rank = 2, .size = 4, .count = 8}), inner);
  EXPECT_EQ(steps("tree", {.rank = 3, .size = 4, .count = 8}), leaf);

  const Steps leaf_in_chunks = {
      {Kind::send, 2, {0, 4}, 0},
      {Kind::send, 2, {4, 8}, 1},
      {Kind::receive, 2, {0, 4}, 3},
      {Kind::receive, 2, {4, 8}, 4},
  };
  EXPECT_EQ(steps("tree", {.rank = 3, .size = 4, .count = 8, .chunks = 2}), leaf_in_chunks);
}

TEST(Schedule, EmptyRangesSendNothingButABarrierDoes) {
  EXPECT_TRUE(steps("ring", {.rank = 1, .size = 4, .count = 0}).empty());
  const Steps expected = {{Kind::send, 1, {0, 0}, 0}, {Kind::receive, 1, {0, 0}, 0}};
  EXPECT_EQ(steps("direct", {.collective = Collective::barrier, .rank = 0, .size = 2, .count = 100}), expected);
}

TEST(Schedule, CopyIsNoMessage) {
  const Steps alone = steps("ring", {.collective = Collective::all_to_all, .size = 1, .count = 6});
  EXPECT_EQ(alone, (Steps{{Kind::copy, 0, {0, 6}, 0}}));
  EXPECT_EQ(count(alone), Counts{});
}

// The formulas as the literature prints them, at one point each.
TEST(Schedule, KnownCosts) {
  const auto formula = [](std::string_view key, int size, int per_host = 1) {
    return algorithm_for(key, Collective::allreduce).make.formula({.size = size, .count = 1200, .per_host = per_host});
  };
  EXPECT_EQ(formula("direct", 4), (Counts{2, 1800, 900}));
  EXPECT_EQ(formula("ring", 4), (Counts{6, 1800, 900}));
  EXPECT_EQ(formula("bucket", 4), (Counts{6, 1800, 900}));
  EXPECT_EQ(formula("tree", 4), (Counts{4, 2400, 2400}));
  EXPECT_EQ(formula("butterfly", 4), (Counts{4, 1800, 900}));
  EXPECT_EQ(formula("butterfly", 5), (Counts{6, 3000, 2100}));
  EXPECT_EQ(formula("recursive_doubling", 4), (Counts{2, 2400, 2400}));
  EXPECT_EQ(formula("double_binary_tree", 8), (Counts{6, 2400, 1200}));
  EXPECT_EQ(formula("hierarchical", 4, 2), (Counts{4, 1200 + 600, 600 + 300}));
  EXPECT_EQ(formula("torus2d", 12), (Counts{10, 2200, 1100}));
}

class Hierarchical : public testing::TestWithParam<int> {};

TEST_P(Hierarchical, CrossesHostsWithWhatItMust) {
  const int per_host = GetParam();
  for (int size = 1; size <= 17; ++size) {
    const int hosts = (size + per_host - 1) / per_host;
    const std::int64_t n = std::int64_t{5040} * 11 * 13 * 17 * size;
    for (const auto& [collective, passes] : {std::pair{Collective::allreduce, 2}, {Collective::reduce_scatter, 1}}) {
      const Problem p{.collective = collective, .size = size, .count = n, .per_host = per_host};
      std::vector<std::int64_t> crossed(static_cast<std::size_t>(hosts));
      const auto lists = all_steps(algorithm_for("hierarchical", collective).make, p);
      for (int rank = 0; rank < size; ++rank) {
        for (const Step& step : lists[static_cast<std::size_t>(rank)]) {
          const int from = rank / per_host, to = step.peer / per_host;
          if (step.kind == Kind::send && from != to) crossed[static_cast<std::size_t>(from)] += step.range.size();
        }
      }
      std::int64_t total = 0;
      for (const std::int64_t host : crossed) {
        total += host;
        if (collective == Collective::allreduce || size % per_host == 0) {
          EXPECT_EQ(host, passes * n * (hosts - 1) / hosts) << describe(p);
        }
      }
      EXPECT_EQ(total, passes * n * (hosts - 1)) << describe(p);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PerHost, Hierarchical, testing::Values(1, 2, 3, 4, 20));

TEST(DoubleBinaryTree, NobodyButTheRootWorksInBothTrees) {
  for (int size = 2; size <= 40; ++size) {
    for (int rank = 1; rank < size; ++rank) {
      bool first = false, second = false;
      for (const Step& step : steps("double_binary_tree", {.collective = Collective::broadcast, .rank = rank, .size = size, .count = 20})) {
        if (step.kind == Kind::send) (step.range.begin < 10 ? first : second) = true;
      }
      EXPECT_FALSE(first && second) << "rank " << rank << " of " << size;
    }
  }
}

TEST(Registry, RefusesWhatIsNotOffered) {
  EXPECT_THAT(refusal([] { algorithm_for("rign", Collective::allreduce); }), HasSubstr("did you mean 'ring'?"));
  EXPECT_THAT(refusal([] { algorithm_for("tree", Collective::all_to_all); }),
              AllOf(HasSubstr("'tree'"), HasSubstr("all_to_all"), HasSubstr("direct"), HasSubstr("ring")));
  for (const Collective collective : kCollectives) {
    EXPECT_TRUE(algorithm_for("ring", collective).make.offer(collective));
  }
}

TEST(Registry, RefusesProblemsThatCannotBe) {
  const auto refused = [](const Problem& problem) { return refusal([&] { steps("ring", problem); }); };
  EXPECT_EQ(refused({.rank = 4, .size = 4, .count = 8}), "allreduce: rank must be 0 to 3, not 4");
  EXPECT_EQ(refused({.rank = 0, .size = 4, .count = 8, .root = -1}), "allreduce: root must be 0 to 3, not -1");
  EXPECT_THAT(refused({.rank = 0, .size = 0, .count = 8}), HasSubstr("at least one rank"));
  EXPECT_THAT(refused({.rank = 0, .size = 2, .count = -1}), HasSubstr("cannot have -1 elements"));
  EXPECT_THAT(refused({.rank = 0, .size = 2, .count = 8, .per_host = 0}), HasSubstr("at least one rank, not 0"));
  EXPECT_THAT(refused({.rank = 0, .size = 2, .count = 8, .chunks = 0}), HasSubstr("chunks must be 1 to"));
  EXPECT_EQ(refused({.collective = Collective::all_to_all, .rank = 0, .size = 3, .count = 8}),
            "all_to_all: 8 elements cannot be cut into 3 equal parts");
}

// The player is the judge of all others, so it must see faults itself.
TEST(Player, SeesFaults) {
  const Problem two{.size = 2, .count = 4};
  const auto verdict = [&](std::vector<Steps> lists) {
    return Player<int>(two, std::move(lists), {{1, 1, 1, 1}, {2, 2, 2, 2}}).play([](std::size_t) { return std::size_t{0}; });
  };
  EXPECT_EQ(verdict({{{Kind::send, 1, {0, 4}, 0}}, {{Kind::reduce, 0, {0, 4}, 0}}}), "");
  EXPECT_THAT(verdict({{{Kind::receive, 1, {0, 4}, 0}}, {{Kind::receive, 0, {0, 4}, 0}}}), HasSubstr("rank 1 at round 0: receive from 0"));
  EXPECT_THAT(verdict({{{Kind::send, 1, {0, 4}, 0}}, {}}), HasSubstr("deadlock:\n  rank 0 at the end of a round"));
  EXPECT_THAT(verdict({{{Kind::send, 1, {0, 4}, 0}}, {{Kind::receive, 0, {0, 2}, 0}}}), HasSubstr("another message"));
  EXPECT_THAT(verdict({{{Kind::send, 1, {0, 4}, 0}}, {{Kind::receive, 0, {0, 4}, 1}}}), HasSubstr("another message"));
  EXPECT_THAT(verdict({{{Kind::send, 1, {0, 3}, 0}, {Kind::receive, 1, {2, 4}, 0}}, {}}), HasSubstr("receives over what it sends"));
  EXPECT_THAT(verdict({{{Kind::send, 0, {0, 4}, 0}}, {}}), HasSubstr("no such peer"));
  EXPECT_THAT(verdict({{{Kind::send, 1, {0, 2}, 0}}, {{Kind::collect, 0, {0, 2}, 0}, {Kind::sum, 0, {0, 4}, 0}}}),
              HasSubstr("has not collected"));
  EXPECT_THAT(verdict({{{Kind::send, 1, {0, 5}, 0}}, {}}), HasSubstr("leaves its buffer"));
}

}  // namespace
}  // namespace paceline::schedule
