// What LC-ASGD's server answers to a report reaches the update.
#include <gtest/gtest.h>

#include "central_runs.h"

namespace paceline::train {
namespace {

TEST(LossCompensated, TheFactorOfAGradientActsAsOneOfTheRate) {
  // A factor that is clipped to ½ whatever is predicted, and half the rate, have the same bits: both only change exponents.
  for (const char* executor : {"virtual", "threads"}) {
    const int workers = executor == std::string("virtual") ? 4 : 1;  // several threads have the machine's order
    Recipe compensated = recipe_of("lc_asgd", executor, workers), plain = recipe_of("asgd", executor, workers);
    compensated.ps.clip_low = compensated.ps.clip_high = 0.5;
    plain.optim.rate /= 2;
    compensated.timing.predictor_ms = compensated.timing.latency_ms = plain.timing.latency_ms = 0;
    EXPECT_EQ(train_once(compensated).ended.parameters_hash, train_once(plain).ended.parameters_hash) << executor;
  }
}

}  // namespace
}  // namespace paceline::train
