// Rounds in closed form against those of the lists that ranks run.
#include "paceline/perf/collective_rounds.h"

#include <gtest/gtest.h>

namespace paceline::perf {
namespace {

using schedule::Collective;
using schedule::Problem;

std::string text_of_rounds(const std::vector<schedule::Round>& rounds) {
  std::string text;
  const auto add = [&](std::int64_t number) { text += std::to_string(number) + " "; };
  for (const schedule::Round& round : rounds) {
    for (const schedule::Traffic& traffic : {round.inside, round.between}) add(traffic.any), add(traffic.queued), add(traffic.moved);
    add(round.reduced), add(round.held);
    text += "\n";
  }
  return text;
}

class ClosedRounds : public testing::TestWithParam<std::string> {};

TEST_P(ClosedRounds, AreThoseOfTheLists) {
  int compared = 0;
  for (const auto& row : schedule::algorithms()) {
    if (row.key != GetParam()) continue;
    for (const Collective collective : row.make.offers)
      for (const int size : {2, 3, 4, 6, 8, 12, 16, 24})
        for (const int per_host : {1, 2, 3, 4, 8, 24})
          for (const std::int64_t chunks : {1, 2, 9}) {
            const Problem problem{.collective = collective, .size = size, .count = 24 * 24 * 9 * 2, .per_host = per_host, .chunks = chunks};
            const auto closed = closed_rounds(row.key, problem, per_host);
            if (!closed) continue;
            ++compared;
            ASSERT_EQ(text_of_rounds(*closed), text_of_rounds(schedule::critical_rounds(row.make, problem, per_host)))
                << name_of(collective) << " of " << size << " ranks, " << per_host << " on a host, " << chunks << " chunks";
          }
  }
  EXPECT_GT(compared, 100);
}

INSTANTIATE_TEST_SUITE_P(Of, ClosedRounds, testing::Values("ring", "bucket", "direct", "hierarchical"),
                         [](const auto& algorithm) { return algorithm.param; });

}  // namespace
}  // namespace paceline::perf
