// What must hold for every registered algorithm and every collective that it offers, on any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "paceline/base/random.h"
#include "tests/schedule/player.h"

namespace paceline::schedule {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32};

struct Case {
  std::string_view key;
  Collective collective;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& entry : algorithms()) {
    for (const Collective collective : entry.make.offers) all.push_back({entry.key, collective});
  }
  return all;
}

/// Every problem worth a try of this size: roots where there is a root, hosts where hosts matter.
std::vector<Problem> problems(const Case& test, int size, std::vector<std::int64_t> counts) {
  const bool rooted = test.collective == Collective::broadcast || test.collective == Collective::reduce;
  std::set<int> roots = {0}, hosts = {1};
  if (rooted) roots.insert({size / 2, size - 1});
  const Algorithm& algorithm = algorithm_for(test.key, test.collective).make;
  if (algorithm.by_host) hosts.insert({2, 3, 4, 64});
  if (test.key == "direct" && test.collective == Collective::reduce) hosts.insert(64);
  if (test.collective == Collective::barrier) counts = {0};
  std::vector<Problem> all;
  for (const std::int64_t count : counts) {
    if (test.collective == Collective::all_to_all && count % size != 0) continue;
    for (const int root : roots) {
      for (const int per_host : hosts) {
        for (const std::int64_t chunks : {1, 3}) {
          all.push_back(
              {.collective = test.collective, .size = size, .count = count, .root = root, .per_host = per_host, .chunks = chunks});
        }
      }
      const Problem on_one_host{.collective = test.collective, .size = size, .count = count, .root = root, .per_host = 64};
      if (const Problem shortened = algorithm.sized(on_one_host, 1, /*shares_memory=*/true); shortened.short_sum) all.push_back(shortened);
    }
  }
  return all;
}

/// What rank `rank` contributes to element `index`: a number of 64 random bits, so that a sum tells which contributions it has and how
/// often.
std::uint64_t contribution(int rank, std::int64_t index) {
  const auto block = philox({static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(index), 0, 0}, {1, 2});
  return std::uint64_t{block[0]} << 32 | block[1];
}

class Contributions {
 public:
  Contributions(int size, std::int64_t count) : count_(count), sums_(static_cast<std::size_t>(count)) {
    for (int rank = 0; rank < size; ++rank) {
      auto& values = of_.emplace_back();
      for (std::int64_t i = 0; i < count; ++i) sums_[static_cast<std::size_t>(i)] += values.emplace_back(contribution(rank, i));
    }
  }

  const std::vector<std::vector<std::uint64_t>>& of() const { return of_; }

  /// What element i of a rank's buffer must be afterwards. Call only for elements that are defined.
  std::uint64_t expected(const Problem& p, int rank, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    switch (p.collective) {
      case Collective::broadcast: return of_[static_cast<std::size_t>(p.root)][at];
      case Collective::all_gather: return of_[static_cast<std::size_t>(owner(p, i))][at];
      case Collective::all_to_all: {
        const std::int64_t each = count_ / p.size;
        return of_[static_cast<std::size_t>(i / each)][static_cast<std::size_t>(each * rank + i % each)];
      }
      default: return sums_[at];
    }
  }

 private:
  static int owner(const Problem& p, std::int64_t i) {
    int rank = 0;
    while (part(p.count, p.size, rank).end <= i) ++rank;
    return rank;
  }

  std::int64_t count_;
  std::vector<std::vector<std::uint64_t>> of_;
  std::vector<std::uint64_t> sums_;
};

/// The elements of a rank's buffer that the collective defines.
Range promised(const Problem& p, int rank) {
  if (p.collective == Collective::reduce_scatter) return part(p.count, p.size, rank);
  if (p.collective == Collective::reduce && rank != p.root) return {0, 0};
  return {0, p.count};
}

std::size_t first_of(std::size_t) { return 0; }

class Properties : public testing::TestWithParam<Case> {
 protected:
  const Algorithm& algorithm() const { return algorithm_for(GetParam().key, GetParam().collective).make; }
};

// For a reduction, that the sum has every rank's contribution exactly once; for the others, that everything lies where it must.
TEST_P(Properties, ResultIsRightForAnySizeAndCount) {
  for (const int size : kSizes) {
    std::map<std::int64_t, Contributions> known;
    for (const Problem& p : problems(GetParam(), size, {0, 1, size - 1, size, 12 * size, 1013})) {
      const auto& contributions = known.try_emplace(p.count, p.size, p.count).first->second;
      Player<std::uint64_t> player(p, all_steps(algorithm(), p), contributions.of());
      ASSERT_EQ(player.play(first_of), "") << describe(p);
      for (int rank = 0; rank < size; ++rank) {
        const Range range = promised(p, rank);
        for (std::int64_t i = range.begin; i < range.end; ++i) {
          ASSERT_EQ(player.buffer(rank)[static_cast<std::size_t>(i)], contributions.expected(p, rank, i))
              << describe(p) << ": element " << i << " of rank " << rank;
        }
        if (p.collective == Collective::barrier) {
          ASSERT_EQ(std::popcount(player.heard(rank)), size) << describe(p) << ": rank " << rank << " left before all came";
        }
      }
    }
  }
}

TEST_P(Properties, CountsEqualTheFormula) {
  for (const int size : kSizes) {
    const std::int64_t divisible = std::int64_t{64} * 3 * size * 9 * 8 * 7 * 5 * 11 * 13 * 17;  // by the chunks and by any number of hosts
    for (const Problem& p : problems(GetParam(), size, {0, divisible})) {
      Counts most;
      for (const Steps& steps : all_steps(algorithm(), p)) {
        const Counts counts = count(steps);
        most = {std::max(most.rounds, counts.rounds), std::max(most.sent, counts.sent), std::max(most.reduced, counts.reduced)};
      }
      const Counts formula = algorithm().formula(p);
      EXPECT_EQ(most.rounds, formula.rounds) << describe(p);
      EXPECT_EQ(most.sent, formula.sent) << describe(p);
      EXPECT_EQ(most.reduced, formula.reduced) << describe(p);
    }
  }
}

// Floating-point sums depend on their order, so equal bits show that the lists alone fix it, whoever is early or late.
TEST_P(Properties, BitsDoNotDependOnTimingNorRank) {
  RandomStream random(7, Purpose::test);
  for (const int size : {2, 5, 8, 13}) {
    for (const Problem& p : problems(GetParam(), size, {3 * size, 41})) {
      std::vector<std::vector<float>> inputs(static_cast<std::size_t>(size));
      for (auto& input : inputs) {
        for (std::int64_t i = 0; i < p.count; ++i) input.push_back(random.normal());
      }
      const auto lists = all_steps(algorithm(), p);
      const auto bits = [](const std::vector<float>& values, Range range) {
        std::vector<std::uint32_t> words(static_cast<std::size_t>(range.size()));
        if (!words.empty()) std::memcpy(words.data(), values.data() + range.begin, words.size() * sizeof(float));
        return words;
      };
      Player<float> first(p, lists, inputs);
      ASSERT_EQ(first.play(first_of), "") << describe(p);
      for (int repeat = 0; repeat < 3; ++repeat) {
        Player<float> again(p, lists, inputs);
        ASSERT_EQ(again.play([&](std::size_t ranks) { return random.below(ranks); }), "") << describe(p);
        for (int rank = 0; rank < size; ++rank) {
          const Range range = promised(p, rank);
          ASSERT_EQ(bits(first.buffer(rank), range), bits(again.buffer(rank), range)) << describe(p) << " rank " << rank;
        }
      }
      if (p.collective != Collective::allreduce) continue;
      for (int rank = 1; rank < size; ++rank) {
        ASSERT_EQ(bits(first.buffer(0), {0, p.count}), bits(first.buffer(rank), {0, p.count})) << describe(p) << " rank " << rank;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, Properties, testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.key) + '_' + std::string(name_of(test.param.collective)); });

}  // namespace
}  // namespace paceline::schedule
