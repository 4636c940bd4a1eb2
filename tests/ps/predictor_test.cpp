// The predictors of LC-ASGD: derivatives against differences (in double), learning on series whose answer is known, and resuming.
#include "paceline/ps/predictors/predictor.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>

#include "paceline/base/error.h"
#include "paceline/ps/predictors/lstm.h"
#include "paceline/ps/predictors/lstm_kernels.h"
#include "paceline/ps/predictors/roll_out.h"

namespace paceline::ps {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

RandomStream stream(std::uint64_t rank = 0) { return RandomStream(7, Purpose::test, rank); }

std::vector<double> draw(RandomStream& random, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = random.normal();
  return values;
}

/// A network in the middle of its life: trained a little, with a state that is not zero.
struct Used {
  explicit Used(const LstmShape& shape) : lstm(shape, 0.01, stream(1)), before(lstm.state()) {
    for (int index = 0; index < 5; ++index) {
      auto step = lstm.step();
      lstm.forward(draw(random, shape.inputs), before, step);
      lstm.train(step, random.normal());
      before = step.after;
    }
  }

  RandomStream random = stream(2);
  Lstm<double> lstm;
  Lstm<double>::State before;
};

const LstmShape kShapes[] = {
    {.inputs = 3, .layers = 2, .hidden = 5}, {.inputs = 1, .layers = 1, .hidden = 16}, {.inputs = 2, .layers = 3, .hidden = 17}};

TEST(Activations, AreWithinFiveTenMillionths) {
  double worst = 0;
  for (int i = -39000; i <= 39000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    for (const float tiny : {1.0f, 1e-3f, 1e-9f}) {
      const float at = x * tiny;
      const double s = sigmoid(static_cast<double>(at)), t = std::tanh(static_cast<double>(at));
      worst = std::max(worst, std::fabs(sigmoid(at) - s) / s);
      if (at != 0) worst = std::max(worst, std::fabs((tangent_hyperbolic(at) - t) / t));
    }
  }
  EXPECT_LT(worst, 5e-7);
  EXPECT_EQ(tangent_hyperbolic(0.0f), 0.0f);
  for (const float x : {100.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(tangent_hyperbolic(x), 1.0f);
    EXPECT_EQ(tangent_hyperbolic(-x), -1.0f);
    EXPECT_EQ(sigmoid(x), 1.0f);
    EXPECT_NEAR(sigmoid(-x), 0.0f, 1e-30f);
  }
}

TEST(Lstm, GradientIsThatOfDifferences) {
  for (const LstmShape& shape : kShapes) {
    Used used(shape);
    Lstm<double>& lstm = used.lstm;
    const std::vector<double> inputs = draw(used.random, shape.inputs);
    const double label = 0.7;
    auto step = lstm.step();

    Lstm<double> trained = lstm;  // m ← β₁ m + (1−β₁) g tells the gradient that Adam got
    trained.forward(inputs, used.before, step);
    trained.train(step, label);

    const auto loss = [&] { return std::pow(lstm.forward(inputs, used.before, step) - label, 2); };
    const double h = 1e-5;
    double largest = 0;
    for (std::size_t i = 0; i < lstm.weights().size(); ++i) {
      const double weight = lstm.weights()[i], gradient = (trained.first_moments()[i] - 0.9 * lstm.first_moments()[i]) / 0.1;
      lstm.weights()[i] = weight + h;
      const double above = loss();
      lstm.weights()[i] = weight - h;
      const double below = loss();
      lstm.weights()[i] = weight;
      ASSERT_NEAR(gradient, (above - below) / (2 * h), 1e-8) << "weight " << i << " of " << shape.layers << " layers";
      largest = std::max(largest, std::fabs(gradient));
    }
    EXPECT_GT(largest, 0.1);
  }
}

TEST(Lstm, TrainingIsAdam) {
  const LstmShape shape{.inputs = 2, .layers = 2, .hidden = 6};
  const double rate = 0.01;
  Lstm<double> lstm(shape, rate, stream(1));
  RandomStream random = stream(2);
  auto before = lstm.state();
  std::vector<double> m(lstm.weights().size()), v(m.size()), expected(lstm.weights().begin(), lstm.weights().end());
  for (int t = 1; t <= 4; ++t) {
    auto step = lstm.step();
    lstm.forward(draw(random, shape.inputs), before, step);
    lstm.train(step, random.normal());
    before = step.after;
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double gradient = (lstm.first_moments()[i] - 0.9 * m[i]) / 0.1;
      m[i] = lstm.first_moments()[i];
      v[i] = 0.999 * v[i] + 0.001 * gradient * gradient;
      expected[i] -= rate * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
      ASSERT_NEAR(lstm.weights()[i], expected[i], 1e-12) << "weight " << i << ", step " << t;
    }
  }
}

TEST(Lstm, FloatFollowsDouble) {
  const LstmShape shape{.inputs = 3, .layers = 2, .hidden = 24};
  Lstm<float> single(shape, 1e-3, stream());
  Lstm<double> exact(shape, 1e-3, stream());
  auto single_state = single.state();
  auto exact_state = exact.state();
  auto single_step = single.step();
  auto exact_step = exact.step();
  RandomStream random = stream(1);
  for (int t = 0; t < 50; ++t) {
    const std::vector<double> inputs = draw(random, shape.inputs);
    const double label = random.normal();
    single.forward(std::vector<float>(inputs.begin(), inputs.end()), single_state, single_step);
    exact.forward(inputs, exact_state, exact_step);
    ASSERT_NEAR(single_step.output, exact_step.output, 1e-4) << "step " << t;
    single.train(single_step, static_cast<float>(label));
    exact.train(exact_step, label);
    single_state = single_step.after;
    exact_state = exact_step.after;
  }
}

template <class Kernel>
[[gnu::optimize("fp-contract=off"), gnu::noinline]] void run_baseline(const typename Kernel::Arguments& arguments) {
  Kernel::run(arguments);
}

TEST(Lstm, EveryWidthOfVectorsGivesTheSameBits) {
  constexpr std::int64_t kBlocks = 3, kRows = 37;
  RandomStream random = stream();
  const auto some = [&](std::int64_t count) {
    const std::vector<double> values = draw(random, count);
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> weights = some(kBlocks * kRows * kBlock), factors = some(kRows), cell = some(kBlocks * kUnits);
  std::vector<float> first = weights, second = weights;
  for (float& value : second) value *= value;

  const auto results = [&](const auto& run) {
    std::vector<float> gates(kBlocks * kBlock), now(kBlocks * kUnits), now_tanh = now, hidden = now, back(kRows);
    std::vector<float> w = weights, m = first, v = second, gradient = gates;
    run.template operator()<Multiply<float>>({kBlocks, kRows, weights.data(), factors.data(), gates.data()});
    run.template operator()<CellForward<float>>({kBlocks, gates.data(), cell.data(), now.data(), now_tanh.data(), hidden.data()});
    run.template operator()<CellBackward<float>>({kBlocks, gates.data(), cell.data(), now_tanh.data(), hidden.data(), gradient.data()});
    run.template operator()<MultiplyTransposed<float>>({{kBlocks, kRows, weights.data(), gradient.data(), back.data()}, kRows});
    run.template operator()<CellTangent<float>>(
        {kBlocks, gates.data(), cell.data(), now_tanh.data(), gradient.data(), now.data(), hidden.data()});
    std::vector<float> squares = gradient;
    for (float& value : squares) value *= value;
    run.template operator()<AdamStep<float>>(
        {kBlocks, kRows, w.data(), m.data(), v.data(), factors.data(), gradient.data(), squares.data(), 0.9f, 0.999f, 10.0f, 1e-5f});
    std::vector<float> all;
    for (const auto& part : {gates, now, now_tanh, hidden, gradient, back, w, m, v}) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto widest = results([]<class Kernel>(const typename Kernel::Arguments& arguments) { Simd<Kernel>::run(arguments); });
  const auto baseline = results([]<class Kernel>(const typename Kernel::Arguments& arguments) { run_baseline<Kernel>(arguments); });
  EXPECT_EQ(widest, baseline);
}

TEST(RollOut, DerivativeIsThatOfDifferences) {
  for (const std::int64_t layers : {1, 2, 3}) {
    Used used({.inputs = 1, .layers = layers, .hidden = 20});
    for (double& weight : used.lstm.weights()) weight *= 2;  // far from linear, and outputs that depend on each other
    RollOut<double> roll_out(used.lstm);
    auto first = used.lstm.step();
    for (const std::int64_t count : {0, 1, 2, 16}) {
      const auto sum = [&](double input) { return roll_out.run(used.lstm, input, used.before, count, false, first).sum; };
      const double input = 0.3, h = 1e-5;
      const auto forecast = roll_out.run(used.lstm, input, used.before, count, true, first);
      EXPECT_NEAR(forecast.derivative, (sum(input + h) - sum(input - h)) / (2 * h), 1e-8) << layers << " layers, " << count << " steps";
      EXPECT_EQ(forecast.sum, sum(input));
      EXPECT_EQ(std::fabs(forecast.derivative) > 1e-3, count > 0);
    }
  }
}

TEST(RollOut, FeedsEveryOutputBack) {
  Used used({.inputs = 1, .layers = 2, .hidden = 20});
  auto first = used.lstm.step(), step = used.lstm.step();
  double value = 0.3, sum = 0;
  auto before = used.before;
  for (int index = 0; index < 5; ++index) {
    sum += value = used.lstm.forward(std::vector{value}, before, step);
    before = step.after;
  }
  EXPECT_EQ(RollOut<double>(used.lstm).run(used.lstm, 0.3, used.before, 5, false, first).sum, sum);
}

/// Falls from 2.3 to 0.3 within some hundred values.
double falling(int index, RandomStream& random) { return 0.3 + 2 * std::exp(-index / 170.0) + 0.05 * random.normal(); }

TEST(LossPredictor, LearnsAFallingSeries) {
  LossPredictor predictor({}, 1);
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
  LossPredictor plain({}, 1), looking({}, 1);
  RandomStream random = stream();
  for (int index = 0; index < 50; ++index) {
    const double loss = falling(index, random);
    EXPECT_EQ(looking.observe(loss, index % 17, index % 2 == 0).next, plain.observe(loss, 0, false).next);
  }
}

TEST(LossPredictor, SumsAsManyStepsAsAsked) {
  const PredictorConfig config{.longest = 8};
  LossPredictor one(config, 1), longest(config, 1), too_long(config, 1), none(config, 1);
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
  LossPredictor predictor({}, 1), untouched({}, 1);
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
    LossPredictor predictor({}, 1);
    for (int index = 0; index < 600; ++index) {
      const LossForecast forecast = predictor.observe(value(index), 16, true);
      ASSERT_TRUE(std::isfinite(forecast.sum) && std::isfinite(forecast.derivative) && std::isfinite(forecast.next)) << index;
    }
  }
  LossPredictor constant({}, 1);
  for (int index = 0; index < 20; ++index) EXPECT_NEAR(constant.observe(2.3, 4, false).sum, 4 * 2.3, 1e-3);
}

TEST(LossPredictor, ResumesWithTheSameBits) {
  LossPredictor saved({}, 1), resumed({}, 2);
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
  LossPredictor predictor({}, 1), narrow({.hidden = 32}, 1);
  predictor.observe(1, 4, false);
  const std::vector<float> before = predictor.save();
  EXPECT_THROW(predictor.load(narrow.save()), ConfigError);
  EXPECT_THROW(predictor.load({}), ConfigError);
  EXPECT_EQ(predictor.save(), before);
}

TEST(LossPredictor, DependsOnTheSeedAlone) {
  LossPredictor a({}, 1), b({}, 1), other({}, 2);
  EXPECT_EQ(a.save(), b.save());
  EXPECT_NE(a.save(), other.save());
}

TEST(StepPredictor, LearnsARoundRobin) {
  StepPredictor predictor({}, 4, 1);
  for (int worker = 0; worker < 4; ++worker) EXPECT_EQ(predictor.observe(worker, 3, 0.01, 0.1), 3);  // the caller's guess
  for (int visit = 0; visit < 40; ++visit) EXPECT_NEAR(predictor.observe(visit % 4, 4, 0.01, 0.1), 4, 1e-3);
}

TEST(StepPredictor, LearnsWorkersOfDifferentSpeed) {
  // The order is A A B: of A's visits every other one comes after 1 step and after 2, B's come after 3.
  StepPredictor predictor({}, 2, 1);
  double forecast[2] = {0, 0}, error = 0;
  for (int visit = 0; visit < 1500; ++visit) {
    const int worker = visit % 3 == 2, steps = worker == 1 ? 3 : visit % 3 == 0 ? 2 : 1;
    if (visit >= 1200) error = std::max(error, std::fabs(forecast[worker] - steps));
    forecast[worker] = predictor.observe(worker, steps, 0.01, worker == 1 ? 0.3 : 0.1);
  }
  EXPECT_LT(error, 0.3);
}

TEST(StepPredictor, StandsBadTimesAndForgetsWhoLeft) {
  StepPredictor predictor({}, 2, 1);
  RandomStream random = stream();
  for (int visit = 0; visit < 200; ++visit) {
    const double time = visit % 7 == 0 ? kNaN : visit % 11 == 0 ? kInfinity : random.uniform();
    const double forecast = predictor.observe(visit % 2, static_cast<std::int64_t>(random.below(5)), time, time);
    ASSERT_TRUE(std::isfinite(forecast) && forecast >= 0) << visit;
  }
  StepPredictor twin({}, 2, 1);
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
  StepPredictor saved({}, 3, 1), resumed({}, 3, 2), more({}, 5, 2), fewer({}, 1, 2);
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
  config.set("ps.predictor_layers=1");
  config.set("ps.predictor_hidden=8");
  config.set("ps.predictor_rate=0.01");
  config.set("ps.predictor_longest=3");
  EXPECT_EQ(predictor.layers, 1);
  EXPECT_EQ(predictor.hidden, 8);
  EXPECT_EQ(predictor.rate, 0.01);
  EXPECT_EQ(predictor.longest, 3);
  EXPECT_THROW(config.set("ps.predictor_hidden=0"), ConfigError);
  EXPECT_THROW(config.set("ps.predictor_rate=0"), ConfigError);
}

}  // namespace
}  // namespace paceline::ps
