// The predictors of LC-ASGD: learning on series whose answer is known, and resuming.
#include "paceline/ps/predictors/lstm_predictors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>

#include "paceline/base/error.h"
#include "paceline/base/random.h"

namespace paceline::ps {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

RandomStream stream(std::uint64_t rank = 0) { return RandomStream(7, Purpose::test, rank); }

/// Falls from 2.3 to 0.3 within some hundred values.
double falling(int index, RandomStream& random) { return 0.3 + 2 * std::exp(-index / 170.0) + 0.05 * random.normal(); }

TEST(LossPredictor, LearnsAFallingSeries) {
  LstmLosses predictor({}, 1);
  RandomStream random = stream();
  double forecast = 0, mean = 0, error = 0, error_of_mean = 0, error_of_last = 0, last = 0;
  for (int index = 0; index < 800; ++index) {
    const double loss = falling(index, random);
    if (index >= 500) {
      error += std::pow(loss - forecast, 2);
      error_of_mean += std::pow(loss - mean, 2);
      error_of_last += std::pow(loss - last, 2);
    }
    mean += (loss - mean) / (index + 1);
    last = loss;
    forecast = predictor.observe(loss, 4, false).next;
  }
  EXPECT_LT(error, 0.1 * error_of_mean);
  EXPECT_LT(error, error_of_last);  // the series is its trend and noise: better than repeating the noise
}

TEST(LossPredictor, RollOutsDisturbNothing) {
  LstmLosses plain({}, 1), looking({}, 1);
  RandomStream random = stream();
  for (int index = 0; index < 50; ++index) {
    const double loss = falling(index, random);
    EXPECT_EQ(looking.observe(loss, index % 17, index % 2 == 0).next, plain.observe(loss, 0, false).next);
  }
}

TEST(LossPredictor, SumsAsManyStepsAsAsked) {
  const PredictorConfig config{.longest = 8};
  LstmLosses one(config, 1), longest(config, 1), too_long(config, 1), none(config, 1);
  RandomStream random = stream();
  for (int index = 0; index < 50; ++index) {
    const double loss = falling(index, random);
    const LossForecast next = one.observe(loss, 1, true), eight = longest.observe(loss, 8, true), cut = too_long.observe(loss, 1000, true);
    EXPECT_EQ(next.sum, next.next);
    EXPECT_EQ(eight.sum, cut.sum);
    EXPECT_EQ(eight.derivative, cut.derivative);
    EXPECT_NEAR(eight.sum, 8 * loss, 8 * 1.0);  // the series' own units
    const LossForecast nothing = none.observe(loss, -1, true);
    EXPECT_EQ(nothing.sum, 0);
    EXPECT_EQ(nothing.derivative, 0);
    EXPECT_EQ(nothing.next, next.next);
  }
}

TEST(LossPredictor, IgnoresWhatIsNotFinite) {
  LstmLosses predictor({}, 1), untouched({}, 1);
  EXPECT_EQ(predictor.observe(kNaN, 4, true).sum, 0);
  RandomStream random = stream();
  for (int index = 0; index < 20; ++index) {
    const double loss = falling(index, random);
    const LossForecast expected = untouched.observe(loss, 4, true), forecast = predictor.observe(loss, 4, true);
    EXPECT_EQ(forecast.sum, expected.sum);
    for (const double bad : {kNaN, kInfinity, -kInfinity, 1e300}) {
      const LossForecast last = predictor.observe(bad, 4, true);
      EXPECT_EQ(last.sum, expected.sum);
      EXPECT_EQ(last.derivative, expected.derivative);
      EXPECT_EQ(last.next, expected.next);
    }
  }
}

TEST(LossPredictor, IsFiniteOnHardSeries) {
  const std::function<double(int)> series[] = {
      [](int) { return 2.3; },                                  // constant
      [](int) { return 0.0; },                                  // of no size at all
      [](int index) { return index < 300 ? 2.3 : 0.1; },        // constant, then a step
      [](int index) { return index % 100 == 99 ? 1e30 : 1.0; }  // explosions
  };
  for (const auto& value : series) {
    LstmLosses predictor({}, 1);
    for (int index = 0; index < 600; ++index) {
      const LossForecast forecast = predictor.observe(value(index), 16, true);
      ASSERT_TRUE(std::isfinite(forecast.sum) && std::isfinite(forecast.derivative) && std::isfinite(forecast.next)) << index;
    }
  }
  LstmLosses constant({}, 1);
  for (int index = 0; index < 20; ++index) EXPECT_NEAR(constant.observe(2.3, 4, false).sum, 4 * 2.3, 1e-3);
}

TEST(LossPredictor, ResumesWithTheSameBits) {
  LstmLosses saved({}, 1), resumed({}, 2);
  RandomStream random = stream();
  for (int index = 0; index < 30; ++index) saved.observe(falling(index, random), 4, true);
  resumed.load(saved.save());
  EXPECT_EQ(resumed.observe(kNaN, 4, true).sum, saved.observe(kNaN, 4, true).sum);
  for (int index = 30; index < 60; ++index) {
    const double loss = falling(index, random);
    const LossForecast a = saved.observe(loss, 4, true), b = resumed.observe(loss, 4, true);
    EXPECT_EQ(a.sum, b.sum);
    EXPECT_EQ(a.derivative, b.derivative);
    EXPECT_EQ(a.next, b.next);
  }
  EXPECT_EQ(saved.save(), resumed.save());
}

TEST(LossPredictor, RefusesAStateOfAnotherShape) {
  LstmLosses predictor({}, 1), narrow({.hidden = 32}, 1);
  predictor.observe(1, 4, false);
  const std::vector<float> before = predictor.save();
  EXPECT_THROW(predictor.load(narrow.save()), ConfigError);
  EXPECT_THROW(predictor.load({}), ConfigError);
  EXPECT_EQ(predictor.save(), before);
}

TEST(LossPredictor, DependsOnTheSeedAlone) {
  LstmLosses a({}, 1), b({}, 1), other({}, 2);
  EXPECT_EQ(a.save(), b.save());
  EXPECT_NE(a.save(), other.save());
}

TEST(StepPredictor, LearnsARoundRobin) {
  LstmSteps predictor({}, 4, 1);
  for (int worker = 0; worker < 4; ++worker) EXPECT_EQ(predictor.observe(worker, 3, 0.01, 0.1), 3);  // the caller's guess
  for (int visit = 0; visit < 40; ++visit) EXPECT_NEAR(predictor.observe(visit % 4, 4, 0.01, 0.1), 4, 1e-3);
}

TEST(StepPredictor, LearnsWorkersOfDifferentSpeed) {
  // The order is A A B: of A's visits every other one comes after 1 step and after 2, B's come after 3.
  LstmSteps predictor({}, 2, 1);
  double forecast[2] = {0, 0}, error = 0;
  for (int visit = 0; visit < 1500; ++visit) {
    const int worker = visit % 3 == 2, steps = worker == 1 ? 3 : visit % 3 == 0 ? 2 : 1;
    if (visit >= 1200) error = std::max(error, std::fabs(forecast[worker] - steps));
    forecast[worker] = predictor.observe(worker, steps, 0.01, worker == 1 ? 0.3 : 0.1);
  }
  EXPECT_LT(error, 0.3);
}

TEST(StepPredictor, StandsBadTimesAndForgetsWhoLeft) {
  LstmSteps predictor({}, 2, 1);
  RandomStream random = stream();
  for (int visit = 0; visit < 200; ++visit) {
    const double time = visit % 7 == 0 ? kNaN : visit % 11 == 0 ? kInfinity : random.uniform();
    const double forecast = predictor.observe(visit % 2, static_cast<std::int64_t>(random.below(5)), time, time);
    ASSERT_TRUE(std::isfinite(forecast) && forecast >= 0) << visit;
  }
  LstmSteps twin({}, 2, 1);
  twin.load(predictor.save());
  predictor.forget(1);
  EXPECT_EQ(predictor.observe(0, 2, 0.1, 0.1), twin.observe(0, 2, 0.1, 0.1));
  const std::vector<float> before = predictor.save();
  predictor.forget(1);
  EXPECT_EQ(predictor.save(), before);
  EXPECT_GE(predictor.observe(5, 0, 0.1, 0.1), 0);  // somebody new
  EXPECT_THROW(predictor.observe(-1, 0, 0.1, 0.1), InternalError);
}

TEST(StepPredictor, ResumesWithTheSameBitsAndOtherWorkers) {
  LstmSteps saved({}, 3, 1), resumed({}, 3, 2), more({}, 5, 2), fewer({}, 1, 2);
  RandomStream random = stream();
  const auto visit = [&](StepPredictor& predictor, int worker, double time) { return predictor.observe(worker, 3, time, 2 * time); };
  for (int index = 0; index < 30; ++index) visit(saved, index % 3, random.uniform());
  const std::vector<float> state = saved.save();
  for (StepPredictor* other : {&resumed, &more, &fewer}) other->load(state);
  const double time = random.uniform(), first = visit(saved, 0, time);
  EXPECT_EQ(visit(resumed, 0, time), first);
  EXPECT_EQ(visit(more, 0, time), first);
  EXPECT_EQ(visit(fewer, 0, time), first);
  for (int index = 1; index < 30; ++index) {
    const double next = random.uniform();
    EXPECT_EQ(visit(saved, index % 3, next), visit(resumed, index % 3, next));
  }
  EXPECT_EQ(saved.save(), resumed.save());
  EXPECT_THAT(visit(more, 4, time), testing::AllOf(testing::Ge(0), testing::Le(10)));

  EXPECT_THROW(saved.load(std::vector<float>(state.begin(), state.end() - 1)), ConfigError);
  EXPECT_THROW(saved.load({}), ConfigError);
  EXPECT_EQ(saved.save(), resumed.save());
}

TEST(PredictorConfig, IsDescribedOnce) {
  PredictorConfig predictor;
  Config config;
  config.bind("ps", "", predictor);
  config.set("ps.predictor=ema");
  config.set("ps.predictor_layers=1");
  config.set("ps.predictor_hidden=8");
  config.set("ps.predictor_rate=0.01");
  config.set("ps.predictor_longest=3");
  EXPECT_EQ(predictor.predictor, "ema");
  EXPECT_EQ(predictor.layers, 1);
  EXPECT_EQ(predictor.hidden, 8);
  EXPECT_EQ(predictor.rate, 0.01);
  EXPECT_EQ(predictor.longest, 3);
  EXPECT_THROW(config.set("ps.predictor=tea"), ConfigError);
  EXPECT_THROW(config.set("ps.predictor_hidden=0"), ConfigError);
  EXPECT_THROW(config.set("ps.predictor_rate=0"), ConfigError);
}

}  // namespace
}  // namespace paceline::ps
