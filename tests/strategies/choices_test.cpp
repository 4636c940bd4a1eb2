// What `allreduce` refuses by the facts of a run.
#include "paceline/strategies/allreduce_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::strategies {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

/// The refusal of a run with LARS on GPUs, in words; empty if it is not refused.
std::string refusal(AllreduceFacts facts, const StrategyConfig& config = {}) {
  facts.on_cpu = facts.elementwise = false, facts.optimizer = "lars";
  try {
    choose(config, facts);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(NormsOfTensors, AreRefusedWhereGpusHoldPieces) {
  const auto says = [](const std::string& setting, const std::string& instead) {
    return AllOf(HasSubstr("optim.name=lars"), HasSubstr(setting), HasSubstr(instead), HasSubstr("parallel.offload=true"));
  };
  for (const int workers : {1, 2})
    EXPECT_THAT(refusal({.workers = workers, .tensor = 2}), says("parallel.tensor=2", "parallel.tensor=1")) << workers;
  EXPECT_THAT(refusal({.workers = 2, .zero = 3}), says("parallel.zero=3", "parallel.zero=0"));
  EXPECT_THAT(refusal({.workers = 2}, {.update = "sharded"}), says("strategy.update=sharded", "strategy.update=whole"));
  EXPECT_THAT(refusal({.workers = 2, .private_entry = "h.1.experts"}), says("h.1.experts", "adamw"));
}

TEST(NormsOfTensors, AreTakenOfWholeOnesAndByTheHost) {
  EXPECT_THAT(refusal({}), IsEmpty());
  EXPECT_THAT(refusal({.workers = 4}), IsEmpty());
  for (const int zero : {0, 1, 2, 3}) EXPECT_THAT(refusal({.workers = 2, .zero = zero, .tensor = 2, .offload = true}), IsEmpty()) << zero;
  EXPECT_NO_THROW(choose({}, {.workers = 2, .on_cpu = false, .zero = 2, .optimizer = "adamw", .tensor = 2}));
  EXPECT_NO_THROW(choose({}, {.workers = 2, .elementwise = false, .zero = 2, .optimizer = "lars", .tensor = 2})) << "on the CPU";
}

}  // namespace
}  // namespace paceline::strategies
