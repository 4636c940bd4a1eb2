// The LSTM of LC-ASGD's predictors: activations, derivatives against differences (in double), Adam, the same bits at every vector width.
#include "paceline/ps/predictors/lstm.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>

#include "paceline/ps/predictors/lstm_kernels.h"
#include "paceline/ps/predictors/roll_out.h"

namespace paceline::ps {
namespace {

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

}  // namespace
}  // namespace paceline::ps
