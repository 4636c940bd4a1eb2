// Where models are cut, and what is refused.
#include "paceline/graph/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "paceline/base/error.h"
#include "tests/message_of.h"

namespace paceline::graph {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<UnitCost> of_times(const std::vector<double>& times) {
  std::vector<UnitCost> units;
  for (const double time : times) units.push_back({.name = "unit" + std::to_string(units.size()), .time = time});
  return units;
}

std::vector<std::size_t> begins(const std::vector<Units>& stages) {
  std::vector<std::size_t> result;
  for (const Units& stage : stages) result.push_back(stage.first);
  return result;
}

double slowest(const std::vector<UnitCost>& units, const std::vector<Units>& stages) {
  double most = 0;
  for (const Units& stage : stages) {
    double sum = 0;
    for (std::size_t unit = stage.first; unit < stage.last; ++unit) sum += units[unit].time;
    most = std::max(most, sum);
  }
  return most;
}

/// The least that any cut reaches, by trying all of them.
double by_trying(const std::vector<UnitCost>& units, std::size_t first, int stages) {
  double best = std::numeric_limits<double>::infinity(), sum = 0;
  if (stages == 1) {
    for (std::size_t unit = first; unit < units.size(); ++unit) sum += units[unit].time;
    return sum;
  }
  for (std::size_t last = first + 1; last + static_cast<std::size_t>(stages) <= units.size() + 1; ++last) {
    sum += units[last - 1].time;
    best = std::min(best, std::max(sum, by_trying(units, last, stages - 1)));
  }
  return best;
}

TEST(Stages, TheSlowestIsAsFastAsItCanBe) {
  const std::vector<std::vector<double>> models = {{1, 1, 1, 1},          {5, 1, 1, 1, 1, 1},         {1, 2, 3, 4, 5, 6, 7, 8},
                                                   {9, 1, 9, 1, 9, 1, 2}, {0, 0, 7, 0, 3, 3, 1, 0.5}, {1, 5, 2, 3}};
  for (const auto& times : models)
    for (const int stages : {1, 2, 3, 4}) {
      const std::vector<UnitCost> units = of_times(times);
      const std::vector<Units> cut = cut_stages(units, {.ranks = stages});
      ASSERT_EQ(std::ssize(cut), stages);
      EXPECT_EQ(cut.front().first, 0U);
      EXPECT_EQ(cut.back().last, units.size());
      for (std::size_t i = 0; i < cut.size(); ++i) {
        EXPECT_LT(cut[i].first, cut[i].last) << "no stage is empty";
        EXPECT_EQ(cut[i].first, i == 0 ? 0 : cut[i - 1].last);
      }
      EXPECT_DOUBLE_EQ(slowest(units, cut), by_trying(units, 0, stages));
    }
}

TEST(Stages, WhatTheSlowestLeavesOpenIsEven) {
  EXPECT_EQ(begins(cut_stages(of_times({9, 1, 1, 1, 1}), {.ranks = 3})), (std::vector<std::size_t>{0, 1, 3}));
}

TEST(Stages, MemoryIsAConstraint) {
  const std::vector<UnitCost> units = of_times({1, 1, 4, 1, 1, 1});
  EXPECT_EQ(begins(cut_stages(units, {.ranks = 2})), (std::vector<std::size_t>{0, 3})) << "6 and 3";
  const std::vector<std::int64_t> bytes = {100, 10, 10, 10, 10, 10};
  const auto limited = [&](std::int64_t limit, std::int64_t copies_of_first) {
    return begins(cut_stages(units, {.ranks = 2}, [&](std::size_t stage, const Units& held) {
      std::int64_t sum = 0;
      for (std::size_t unit = held.first; unit < held.last; ++unit) sum += bytes[unit];
      return sum * (stage == 0 ? copies_of_first : 1) <= limit;
    }));
  };
  EXPECT_EQ(limited(110, 1), (std::vector<std::size_t>{0, 2})) << "2 and 7, but it fits";
  EXPECT_EQ(limited(300, 3), (std::vector<std::size_t>{0, 1})) << "the first stage holds three times as much";
  EXPECT_TRUE(limited(99, 1).empty());
}

TEST(Stages, MoreThanUnitsAreRefusedWithTheNearestChoice) {
  const std::vector<UnitCost> units = of_times({1, 1, 1});
  EXPECT_THAT(message_of<ConfigError>([&] { cut_stages(units, {.ranks = 4}); }),
              AllOf(HasSubstr("parallel.pipeline=4"), HasSubstr("3 units"), HasSubstr("parallel.pipeline=3")));
  EXPECT_THAT(message_of<ConfigError>([&] { cut_stages(units, {.ranks = 3, .chunks = 2}); }),
              AllOf(HasSubstr("parallel.chunks=2"), HasSubstr("parallel.chunks=1")));
  EXPECT_THAT(message_of<ConfigError>([&] { cut_stages(units, {.ranks = 4, .chunks = 2}); }), HasSubstr("parallel.pipeline=3"));
}

TEST(Stages, RanksOfChunksHoldEveryNth) {
  const std::vector<Units> stages = cut_stages(of_times({1, 1, 1, 1}), {.ranks = 2, .chunks = 2});
  const std::vector<Units> held = held_by(stages, 2, 1);
  ASSERT_EQ(held.size(), 2U);
  EXPECT_EQ(held[0].first, 1U);
  EXPECT_EQ(held[1].first, 3U);
}

}  // namespace
}  // namespace paceline::graph
