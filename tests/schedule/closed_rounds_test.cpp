// Rounds in closed form against those of the lists that ranks run.
#include "paceline/schedule/path.h"

#include <gtest/gtest.h>

namespace paceline::schedule {
namespace {

std::string text_of_rounds(const std::vector<Round>& rounds) {
  std::string text;
  const auto add = [&](std::int64_t number) { text += std::to_string(number) + " "; };
  for (const Round& round : rounds) {
    for (const Traffic& traffic : {round.inside, round.between}) add(traffic.any), add(traffic.queued), add(traffic.moved);
    add(round.reduced), add(round.held);
    text += "\n";
  }
  return text;
}

std::vector<std::string> with_closed_rounds() {
  std::vector<std::string> keys;
  for (const auto& row : algorithms())
    if (row.make.rounds != nullptr) keys.emplace_back(row.key);
  return keys;
}

class ClosedRounds : public testing::TestWithParam<std::string> {};

TEST_P(ClosedRounds, AreThoseOfTheLists) {
  const Algorithm& algorithm = find(algorithms(), "algorithm", GetParam()).make;
  int compared = 0;
  for (const Collective collective : algorithm.offers)
    for (const int size : {2, 3, 4, 6, 8, 12, 16, 24})
      for (const int per_host : {1, 2, 3, 4, 8, 24})
        for (const std::int64_t chunks : {1, 2, 9}) {
          const Problem problem{.collective = collective, .size = size, .count = 24 * 24 * 9 * 2, .per_host = per_host, .chunks = chunks};
          const auto closed = closed_rounds(algorithm, problem, per_host);
          if (!closed) continue;
          ++compared;
          ASSERT_EQ(text_of_rounds(*closed), text_of_rounds(critical_rounds(algorithm, problem, per_host)))
              << name_of(collective) << " of " << size << " ranks, " << per_host << " on a host, " << chunks << " chunks";
        }
  EXPECT_GT(compared, 100);
}

INSTANTIATE_TEST_SUITE_P(Of, ClosedRounds, testing::ValuesIn(with_closed_rounds()), [](const auto& algorithm) { return algorithm.param; });

}  // namespace
}  // namespace paceline::schedule
