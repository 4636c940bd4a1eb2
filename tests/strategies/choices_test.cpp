// What `allreduce` chooses by the facts of a run.
#include "paceline/strategies/allreduce_choices.h"

#include <gtest/gtest.h>

namespace paceline::strategies {
namespace {

// The norm of a tensor in pieces is known when all of its gradient has arrived.
TEST(AllreduceChoices, NormsOfPiecesWaitForAllGradients) {
  const auto waits = [](AllreduceFacts facts, const StrategyConfig& config = {}) {
    facts.elementwise = false;
    return choose(config, facts).updates_at_end;
  };
  for (const int zero : {1, 3}) EXPECT_TRUE(waits({.workers = 2, .zero = zero})) << zero;
  EXPECT_TRUE(waits({.workers = 2}, {.update = "sharded"}));
  EXPECT_TRUE(waits({.workers = 2, .private_entry = "h.1.experts"}));
  EXPECT_TRUE(waits({.workers = 2, .tensor = 2}));
  EXPECT_FALSE(waits({.workers = 2})) << "whole tensors are updated as their buckets arrive";
  EXPECT_FALSE(choose({}, {.workers = 2, .zero = 1}).updates_at_end) << "without norms, any part is updated when it arrives";
}

TEST(AllreduceChoices, NormsKeepUpdatesWholeWhereTheRecipeLeavesItOpen) {
  EXPECT_TRUE(choose({}, {.workers = 2}).sharded);
  EXPECT_FALSE(choose({}, {.workers = 2, .elementwise = false}).sharded);
  EXPECT_FALSE(choose({}, {.workers = 2, .clips = true}).sharded);
  for (const bool on_cpu : {true, false})
    EXPECT_TRUE(choose({}, {.workers = 2, .on_cpu = on_cpu, .elementwise = false, .zero = 2}).sharded);
}

}  // namespace
}  // namespace paceline::strategies
