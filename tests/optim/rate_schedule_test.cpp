#include "paceline/optim/rate_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "paceline/base/error.h"

namespace paceline::optim {
namespace {

using testing::HasSubstr;

/// The rate at an epoch of a run of 90, for a base rate of 1 and a batch of 256.
double rate(const ScheduleConfig& config, double epoch, double epochs = 90) { return learning_rate(config, 1, 256, {epoch, epochs}); }

TEST(Schedule, ConstantStaysWhereItIs) {
  const ScheduleConfig config;
  for (double epoch : {0.0, 0.5, 89.0, 90.0}) EXPECT_DOUBLE_EQ(rate(config, epoch), 1);
}

TEST(Schedule, StepDecaysAtEveryMultiple) {
  const ScheduleConfig config{.name = "step", .step_epochs = 30, .gamma = 0.1};
  EXPECT_DOUBLE_EQ(rate(config, 0), 1);
  EXPECT_DOUBLE_EQ(rate(config, 29.999), 1);
  EXPECT_DOUBLE_EQ(rate(config, 30), 0.1);
  EXPECT_NEAR(rate(config, 60), 0.01, 1e-15);
  EXPECT_NEAR(rate({.name = "step", .step_epochs = 0.1, .gamma = 0.5}, 0.3), 0.125, 1e-15);
}

TEST(Schedule, MultiStepDecaysAtItsMilestones) {
  const ScheduleConfig config{.name = "multi_step", .milestones = {30, 60, 80}};
  EXPECT_DOUBLE_EQ(rate(config, 0), 1);
  EXPECT_DOUBLE_EQ(rate(config, 29.99), 1);
  EXPECT_NEAR(rate(config, 30), 0.1, 1e-15);
  EXPECT_NEAR(rate(config, 79.9), 0.01, 1e-15);
  EXPECT_NEAR(rate(config, 80), 0.001, 1e-15);
  EXPECT_NEAR(rate(config, 90), 0.001, 1e-15);
}

TEST(Schedule, PolynomialAndCosineRunDownToTheFinalFactor) {
  const ScheduleConfig square{.name = "polynomial", .power = 2, .final_factor = 0.1};
  EXPECT_DOUBLE_EQ(rate(square, 0), 1);
  EXPECT_NEAR(rate(square, 45), 0.1 + 0.9 * 0.25, 1e-15);
  EXPECT_DOUBLE_EQ(rate(square, 90), 0.1);
  EXPECT_DOUBLE_EQ(rate(square, 91), 0.1) << "past the end it stays";
  const ScheduleConfig wave{.name = "cosine", .final_factor = 0.2};
  EXPECT_DOUBLE_EQ(rate(wave, 0), 1);
  EXPECT_NEAR(rate(wave, 30), 0.2 + 0.8 * 0.75, 1e-12);
  EXPECT_NEAR(rate(wave, 45), 0.6, 1e-12);
  EXPECT_NEAR(rate(wave, 90), 0.2, 1e-12);
}

TEST(Schedule, OneCycleRisesAndFalls) {
  const ScheduleConfig config{.name = "one_cycle", .initial_factor = 0.1, .final_factor = 0.01, .peak_epoch = 5};
  EXPECT_NEAR(rate(config, 0, 24), 0.1, 1e-12);
  EXPECT_NEAR(rate(config, 2.5, 24), 0.55, 1e-12);
  EXPECT_NEAR(rate(config, 5, 24), 1, 1e-12);
  EXPECT_NEAR(rate(config, 14.5, 24), 0.505, 1e-12);
  EXPECT_NEAR(rate(config, 24, 24), 0.01, 1e-12);
  EXPECT_NEAR(rate({.name = "one_cycle"}, 27), 1, 1e-12) << "30% of the run unless told";
  EXPECT_NEAR(rate({.name = "one_cycle", .peak_epoch = 200}, 45), 0.5, 1e-12) << "a peak past the end is at the end";
}

TEST(Schedule, PiecewiseIsLinearBetweenItsPoints) {
  const ScheduleConfig config{.name = "piecewise", .points_epoch = {0, 15, 30, 35}, .points_factor = {0, 1, 0.05, 0}};
  EXPECT_DOUBLE_EQ(rate(config, 0), 0);
  EXPECT_NEAR(rate(config, 7.5), 0.5, 1e-12);
  EXPECT_NEAR(rate(config, 15), 1, 1e-12);
  EXPECT_NEAR(rate(config, 22.5), 0.525, 1e-12);
  EXPECT_NEAR(rate(config, 30), 0.05, 1e-12);
  EXPECT_DOUBLE_EQ(rate(config, 35), 0);
  EXPECT_DOUBLE_EQ(rate(config, 60), 0);
  EXPECT_DOUBLE_EQ(rate({.name = "piecewise", .points_epoch = {10, 20}, .points_factor = {3, 2}}, 4), 3) << "before the first point";
}

TEST(Warmup, StartsAtZeroOrWhereItIsTold) {
  ScheduleConfig config{.warmup_epochs = 5};
  EXPECT_DOUBLE_EQ(rate(config, 0), 0);
  EXPECT_DOUBLE_EQ(rate(config, 2.5), 0.5);
  EXPECT_DOUBLE_EQ(rate(config, 5), 1);
  config.warmup_factor = 0.2;
  EXPECT_DOUBLE_EQ(rate(config, 0), 0.2);
  EXPECT_DOUBLE_EQ(rate(config, 2.5), 0.6);
  EXPECT_DOUBLE_EQ(rate(config, 6), 1);
}

// Goyal et al.: 0.1 for a batch of 256, so 3.2 for 8192, reached over 5 epochs from 0.1.
TEST(LinearScaling, WarmsUpFromTheRateOfTheSmallBatch) {
  ScheduleConfig config{.name = "multi_step", .warmup_epochs = 5, .milestones = {30, 60, 80}, .linear_scaling = true, .base_batch = 256};
  const auto at = [&](double epoch) { return learning_rate(config, 0.1, 8192, {epoch, 90}); };
  EXPECT_NEAR(at(0), 0.1, 1e-12);
  EXPECT_NEAR(at(2.5), (0.1 + 3.2) / 2, 1e-12);
  EXPECT_NEAR(at(5), 3.2, 1e-12);
  EXPECT_NEAR(at(30), 0.32, 1e-12);
  EXPECT_NEAR(at(80), 0.0032, 1e-12);
  config.warmup_factor = 0;
  EXPECT_DOUBLE_EQ(at(0), 0) << "an explicit factor wins";
  config.warmup_factor = kSmallBatchRate;
  EXPECT_NEAR(learning_rate(config, 0.1, 128, {0, 90}), 0.05, 1e-12) << "a batch below the base does not warm up from above";
}

TEST(BatchGrowth, MultipliesTheBatchAndLeavesTheRate) {
  const ScheduleConfig config{.batch_milestones = {30, 60}, .batch_factor = 5};
  EXPECT_EQ(batch_at(config, 256, 0), 256);
  EXPECT_EQ(batch_at(config, 256, 29), 256);
  EXPECT_EQ(batch_at(config, 256, 30), 1280);
  EXPECT_EQ(batch_at(config, 256, 60), 6400);
  for (double epoch : {0.0, 30.0, 89.0}) EXPECT_DOUBLE_EQ(rate(config, epoch), 1);
}

// The effect of a step is rate / batch: it must fall by the same factors whatever part of it the limit leaves to the rate.
TEST(BatchGrowth, PastTheLimitTheRateFallsInstead) {
  const ScheduleConfig config{.batch_milestones = {30, 60, 80}, .batch_factor = 5, .largest_batch = 2560};
  EXPECT_EQ(batch_at(config, 256, 60), 2560);
  EXPECT_EQ(batch_at(config, 256, 80), 2560);
  EXPECT_DOUBLE_EQ(rate(config, 30), 1);
  EXPECT_DOUBLE_EQ(rate(config, 60), 0.4);  // 6400 wanted
  EXPECT_DOUBLE_EQ(rate(config, 80), 0.08);
  double noise = rate(config, 0) / 256;
  for (std::int64_t epoch : {30, 60, 80}) {
    const double next = rate(config, static_cast<double>(epoch)) / static_cast<double>(batch_at(config, 256, epoch));
    EXPECT_NEAR(next / noise, 0.2, 1e-12);
    noise = next;
  }
}

// Batch × 2 with rate × 0.2 acts as rate × 0.1.
TEST(BatchGrowth, MixesWithADecayOfTheRate) {
  const ScheduleConfig mixed{.name = "multi_step", .milestones = {30, 60}, .gamma = 0.2, .batch_milestones = {30, 60}, .batch_factor = 2};
  const ScheduleConfig decay{.name = "multi_step", .milestones = {30, 60}, .gamma = 0.1};
  for (std::int64_t epoch : {0, 30, 60}) {
    const auto at = static_cast<double>(epoch);
    EXPECT_NEAR(rate(mixed, at) / static_cast<double>(batch_at(mixed, 256, epoch)), rate(decay, at) / 256, 1e-15);
  }
}

TEST(BatchGrowth, HappensBetweenEpochs) {
  const ScheduleConfig config{.batch_milestones = {2.5}, .batch_factor = 2, .largest_batch = 256};
  EXPECT_DOUBLE_EQ(rate(config, 2.9), 1) << "epoch 2 began with the old batch";
  EXPECT_DOUBLE_EQ(rate(config, 3), 0.5);
}

std::string error_of(const ScheduleConfig& config, std::int64_t batch = 256) {
  try {
    learning_rate(config, 1, batch, {0, 90});
    batch_at(config, batch, 0);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleConfigTest, NonsenseIsRefused) {
  EXPECT_THAT(error_of({.name = "cosin"}), HasSubstr("did you mean 'cosine'"));
  EXPECT_THAT(error_of({.name = "multi_step", .milestones = {60, 30}}), HasSubstr("schedule.milestones must be epochs"));
  EXPECT_THAT(error_of({.name = "multi_step", .milestones = {30, 30}}), HasSubstr("ascending"));
  EXPECT_THAT(error_of({.name = "multi_step"}), HasSubstr("needs schedule.milestones"));
  EXPECT_THAT(error_of({.batch_milestones = {-1}}), HasSubstr("schedule.batch_milestones"));
  EXPECT_THAT(error_of({.name = "piecewise"}), HasSubstr("needs points"));
  EXPECT_THAT(error_of({.name = "piecewise", .points_epoch = {1, 2}, .points_factor = {1}}), HasSubstr("equally long, not 2 and 1"));
  EXPECT_THAT(error_of({.name = "step", .step_epochs = 0}), HasSubstr("schedule.step_epochs must be above 0"));
  EXPECT_THAT(error_of({.batch_factor = 1}), HasSubstr("schedule.batch_factor"));
  EXPECT_THAT(error_of({.largest_batch = 128}), HasSubstr("above schedule.largest_batch 128"));
  EXPECT_THAT(error_of({}, 0), HasSubstr("at least 1"));
  EXPECT_THROW(learning_rate({}, 1, 256, {0, 0}), ConfigError);
  EXPECT_THROW(batch_at({.batch_milestones = {1}, .batch_factor = 1e300}, 256, 5), ConfigError);
  EXPECT_EQ(error_of({}), "");
}

TEST(ScheduleConfigTest, ARecipeFillsIt) {
  ScheduleConfig schedule;
  Config config;
  config.bind("schedule", "the learning rate", schedule);
  config.set("schedule.name=multi_step");
  config.set("schedule.milestones=[30, 60, 80]");
  EXPECT_EQ(schedule.milestones, (std::vector<double>{30, 60, 80}));
  EXPECT_THROW(config.set("schedule.name=multistep"), ConfigError);
  EXPECT_THROW(config.set("schedule.warmup_factor=2"), ConfigError);
}

}  // namespace
}  // namespace paceline::optim
