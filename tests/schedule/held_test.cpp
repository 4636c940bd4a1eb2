// What must be held beside the buffer until a round is over.
#include <gtest/gtest.h>

#include "paceline/schedule/held.h"

namespace paceline::schedule {
namespace {

using Kind = Step::Kind;

TEST(Held, IsWhatIsOnItsWayOut) {
  const Steps round = {{Kind::send, 1, {0, 8}, 0}, {Kind::reduce, 1, {4, 12}, 0}, {Kind::reduce, 2, {12, 16}, 0}};
  EXPECT_EQ(held(round), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(held_elements(round), 8);
}

TEST(Held, IsWhatAnEarlierStepReduces) {
  const Steps round = {{Kind::reduce, 1, {0, 8}, 0}, {Kind::reduce, 2, {7, 9}, 0}, {Kind::reduce, 3, {9, 10}, 0}};
  EXPECT_EQ(held(round), (std::vector<bool>{false, true, false}));
}

TEST(Held, RangesThatTouchDoNotOverlap) {
  const Steps round = {{Kind::send, 1, {8, 12}, 0}, {Kind::send, 2, {0, 4}, 0}, {Kind::reduce, 1, {4, 8}, 0}, {Kind::reduce, 1, {5, 5}, 0}};
  EXPECT_EQ(held_elements(round), 0);
}

TEST(Held, RoundsDoNotMix) {
  const Steps steps = {{Kind::send, 1, {0, 8}, 0}, {Kind::reduce, 1, {0, 8}, 1}, {Kind::send, 1, {0, 8}, 2}, {Kind::reduce, 1, {0, 8}, 2}};
  EXPECT_EQ(held_elements(steps), 8);
}

TEST(Held, OfRecursiveDoublingIsAllAndOfARingNothing) {
  const Problem problem{.size = 8, .count = 80};
  const auto elements = [&](std::string_view key) { return held_elements(algorithm_for(key, Collective::allreduce).make.steps(problem)); };
  EXPECT_EQ(elements("recursive_doubling"), 3 * 80);
  EXPECT_EQ(elements("ring"), 0);
  EXPECT_EQ(elements("direct"), 6 * 10);  // seven values come for the own part, the first of which is added as it comes
}

}  // namespace
}  // namespace paceline::schedule
