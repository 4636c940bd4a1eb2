#include "paceline/sim/failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "paceline/base/error.h"
#include "paceline/perf/goodput.h"

namespace paceline::sim {
namespace {

const std::vector<double> kSteps = {0.9, 1.1, 1.0};

struct Life {
  double mtbf_s, checkpoint_s, restart_s, interval_s;
};
class Daly : public testing::TestWithParam<Life> {};

TEST_P(Daly, TheSimulatedGoodputIsThatOfTheModel) {
  const auto [mtbf_s, checkpoint_s, restart_s, interval_s] = GetParam();
  const Survival life = survive(
      {.mtbf_s = mtbf_s, .devices = 100, .checkpoint_s = checkpoint_s, .restart_s = restart_s, .interval_s = interval_s, .failures = 20000},
      kSteps);
  const perf::Goodput model =
      perf::goodput({.mtbf_s = mtbf_s, .devices = 100, .checkpoint_s = checkpoint_s, .restart_s = restart_s, .interval_s = interval_s});
  EXPECT_NEAR(life.share(), model.share, 0.015 * model.share);
  EXPECT_NEAR(life.useful_s + life.lost_s + life.checkpoints_s + life.restarts_s, life.wall_s, 0.001 * life.wall_s);
  EXPECT_EQ(life.failures, 20000);
  EXPECT_LE(life.longest_loss_s, interval_s + 100);
}
INSTANTIATE_TEST_SUITE_P(, Daly,
                         testing::Values(Life{1e6, 60, 300, 1000}, Life{1e5, 60, 300, 300}, Life{1e6, 600, 10, 5000},
                                         Life{3e5, 0, 2000, 500},
                                         // Many checkpoints between two failures, which are one event.
                                         Life{1e8, 60, 300, 100}, Life{1e9, 0, 2000, 0.1}, Life{1e9, 2, 0, 1}));

TEST(Failures, WithoutCheckpointsCostHalfAnIntervalIsLostAtEachFailure) {
  for (const double mtbf_s : {1e6, 1e9}) {  // in the second, many checkpoints between two failures are one event
    const Survival life = survive({.mtbf_s = mtbf_s, .devices = 10, .interval_s = 1000}, kSteps);
    EXPECT_NEAR(life.lost_s / static_cast<double>(life.failures), 500, 20) << mtbf_s;
  }
}

/// A checkpoint behind every step, for millions of years.
TEST(Failures, HoweverShortTheIntervalItEnds) {
  const Survival life = survive({.mtbf_s = 1e14, .devices = 10, .checkpoint_s = 1, .interval_s = 0, .failures = 1000}, kSteps);
  EXPECT_NEAR(life.share(), 0.5, 1e-3);
  EXPECT_NEAR(static_cast<double>(life.checkpoints), life.wall_s / 2, 1e-3 * life.wall_s);
  EXPECT_LE(life.longest_loss_s, 1.2);
}

TEST(Failures, AWorkerOfAServerFailsAlone) {
  const FailureSettings settings{
      .mtbf_s = 1e4, .devices = 1, .workers = 50, .checkpoint_s = 0, .restart_s = 1000, .interval_s = 500, .failures = 3000};
  const Survival life = survive(settings, kSteps);
  EXPECT_NEAR(life.workers_up, 1e4 / 1.1e4, 0.01);
  EXPECT_LT(life.share(), life.useful_s / life.wall_s);
}

TEST(Failures, ReliableDevicesCostNextToNothingHoweverLongThatTakes) {
  const Survival life = survive({.mtbf_s = 1e12, .checkpoint_s = 1, .interval_s = 1e9, .failures = 100}, kSteps);
  EXPECT_GT(life.wall_s, 5e13);
  EXPECT_GT(life.share(), 0.999);
}

TEST(Failures, RefusesAJobThatNeverGetsToACheckpoint) {
  EXPECT_THAT([] { survive({.mtbf_s = 100, .devices = 100, .interval_s = 100}, kSteps); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("every 1 s")));
  EXPECT_THROW(survive({.mtbf_s = -1}, kSteps), ConfigError);
}

}  // namespace
}  // namespace paceline::sim
