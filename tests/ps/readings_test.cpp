// LC-ASGD without its predictors' quality: the factor that each reading gives, its clipping, what the server asks the predictors for, the
// control `literal`, and Async-BN.
#include "paceline/ps/readings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "paceline/base/error.h"
#include "paceline/ps/predictors/lstm_predictors.h"
#include "tests/ps/player.h"

namespace paceline::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::IsNan;
using testing::Le;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PsConfig with_reading(const std::string& reading) {
  PsConfig config;
  config.rule = "lc_asgd", config.reading = reading;
  config.layers = 1, config.hidden = 4;
  return config;
}

/// The table of the six readings: s from ℓ, λ, k, Σ ℓ̂ and ∂Σ/∂ℓ.
double factor(const std::string& reading, double loss, double lambda, double k, double sum, double derivative) {
  if (reading == "literal") return 1;
  if (reading == "rescale") return (loss + lambda * sum) / loss;
  if (reading == "normalised") return (loss + lambda * sum) / ((1 + lambda * k) * loss);
  if (reading == "sqrt") return std::sqrt((loss + lambda * sum) / ((1 + lambda * k) * loss));
  if (reading == "chain_rule") return 1 + lambda * derivative;
  if (reading == "squared") return loss + lambda * sum;
  return kNan;
}

double reading_of(const std::string& name, const Delay& delay) { return find(readings(), "reading", name).make.factor(delay); }

TEST(Readings, GiveTheFactorsOfTheirFormulas) {
  std::set<std::string> names;
  for (const auto& row : readings()) {
    const std::string name(row.key);
    names.insert(name);
    for (const double loss : {0.1, 1.0, 2.5})
      for (const double lambda : {0.0, 0.01, 0.1, 1.0})
        for (const double k : {0.0, 1.0, 7.0}) {
          const double sum = 0.8 * k * loss + 0.01 * k, derivative = 0.7 * k;
          const double s =
              reading_of(name, {.loss = loss, .lambda = lambda, .steps = k, .forecast = {.sum = sum, .derivative = derivative}});
          EXPECT_NEAR(s, factor(name, loss, lambda, k, sum, derivative), 1e-12 * std::abs(s)) << name;
        }
  }
  EXPECT_EQ(names, (std::set<std::string>{"literal", "rescale", "normalised", "sqrt", "chain_rule", "squared"}));
}

TEST(Readings, AreOneWhereNothingIsMissed) {
  for (const std::string name : {"literal", "rescale", "normalised", "sqrt", "chain_rule"})
    EXPECT_EQ(reading_of(name, {.loss = 1.7, .lambda = 1, .steps = 0, .forecast = {}}), 1) << name;
}

// A loss that is predicted to fall shortens the step of these two and to rise lengthens it; rescale grows with the delay whatever comes.
TEST(Readings, FollowThePrediction) {
  const Delay falls{.loss = 1, .lambda = 1, .steps = 4, .forecast = {.sum = 3}},
      rises{.loss = 1, .lambda = 1, .steps = 4, .forecast = {.sum = 5}};
  for (const std::string name : {"normalised", "sqrt"}) {
    EXPECT_LT(reading_of(name, falls), 1) << name;
    EXPECT_GT(reading_of(name, rises), 1) << name;
  }
  EXPECT_GT(reading_of("rescale", falls), 3);
}

TEST(Readings, TakeAPredictionBelowZeroForTheSmallestFactor) {
  const Delay wild{.loss = 1, .lambda = 1, .steps = 2, .forecast = {.sum = -5}};
  EXPECT_LT(reading_of("normalised", wild), 0);
  EXPECT_EQ(reading_of("sqrt", wild), 0);
}

std::unique_ptr<UpdateRule> rule_of(const PsConfig& config, int workers, std::uint64_t seed) {
  return make_rule({.config = config, .optim = {}, .workers = workers, .seed = seed});
}

/// Reports of three workers, and what two predictors of one's own say to the same numbers.
class LcAsgdTest : public testing::TestWithParam<const char*> {};

TEST_P(LcAsgdTest, AsksThePredictorsAndClips) {
  PsConfig config = with_reading(GetParam());
  config.lc_lambda = 0.5, config.longest = 3, config.clip_low = 0.9, config.clip_high = 1.4;
  const auto rule = rule_of(config, 3, 9);
  LstmLosses losses(config, 9);
  LstmSteps steps(config, 3, 9);
  std::map<int, int> last;
  std::set<double> ks;
  int low = 0, high = 0, number = 0;
  for (const char letter : std::string("abcacbabccbaaacbbacabcabcaccbbaabcabbcabcabcbbbbbbbabccc")) {
    const int worker = worker_of(letter);
    const double loss = (number % 7 == 3 ? 3.0 : 1.0) / (1 + 0.05 * number), t_comm = 0.01 * (number % 3), t_comp = 0.1 + 0.01 * worker;
    const Advice advice = rule->on_report(worker, {.loss = loss, .t_comm_s = t_comm, .t_comp_s = t_comp});

    const int between = last.contains(worker) ? number - last[worker] - 1 : 0;  // reports of the others
    last[worker] = number++;
    const auto k = static_cast<double>(std::llround(std::min(steps.observe(worker, between, t_comm, t_comp), 3.0)));
    const LossForecast forecast = losses.observe(loss, static_cast<std::int64_t>(k), std::string(GetParam()) == "chain_rule");
    const double s = factor(GetParam(), loss, 0.5, k, forecast.sum, forecast.derivative);
    EXPECT_EQ(advice.steps, k);
    EXPECT_EQ(advice.delay, forecast.sum);
    EXPECT_NEAR(advice.scale, s < 0.9 ? 0.9 : s > 1.4 ? 1.4 : s, 1e-12) << "report " << number;
    ks.insert(k);
    low += s<0.9, high += s> 1.4;
  }
  EXPECT_GT(ks.size(), 2u) << "the script is to have different delays";
  if (std::string(GetParam()) == "squared") {
    EXPECT_GT(low, 0);
    EXPECT_GT(high, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ps, LcAsgdTest, testing::Values("literal", "rescale", "normalised", "sqrt", "chain_rule", "squared"),
                         [](const auto& one) { return std::string(one.param); });

TEST(LcAsgd, LeavesTheGradientAloneWhereTheLossIsNoNumber) {
  for (const auto& row : readings()) {
    const auto rule = rule_of(with_reading(std::string(row.key)), 2, 1);
    for (const double loss : {1.0, kNan, 0.9, std::numeric_limits<double>::infinity(), 0.0, 0.8}) {
      const Advice advice = rule->on_report(0, {.loss = loss, .t_comm_s = 1, .t_comp_s = 1});
      EXPECT_GE(advice.scale, 0.5) << row.key;
      EXPECT_LE(advice.scale, 2) << row.key;
      EXPECT_TRUE(advice.scale == 1 || std::isfinite(loss) || row.key == "chain_rule") << row.key;  // which needs no loss
    }
  }
}

TEST(LcAsgd, RecordsPredictionsBesideWhatCame) {
  const auto rule = rule_of(with_reading("normalised"), 2, 1);
  for (int i = 0; i < 5; ++i) rule->on_report(i % 2, {.loss = 1.0 + i, .t_comm_s = 1, .t_comp_s = 1});
  const PredictorRecord& record = *rule->predictions();
  EXPECT_THAT(record.actual_loss, ElementsAre(2, 3, 4, 5)) << "the first had no prediction";
  EXPECT_THAT(record.actual_steps, ElementsAre(IsNan(), 1, 1, 1)) << "nor had the first visit of worker 1";
  EXPECT_EQ(record.predicted_loss.size(), 4u);
  EXPECT_THAT(record.predicted_steps, ElementsAre(IsNan(), Ge(0), Ge(0), Ge(0)));
  EXPECT_GT(record.loss_seconds + record.step_seconds, 0);
  EXPECT_THAT(record.worker, ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(record.steps_ahead, ElementsAre(0, Ge(0), Ge(0), Ge(0))) << "what was answered: at first nobody knows";
  EXPECT_EQ(record.delay_loss.size(), 4u);
  EXPECT_THAT(record.scale, Each(AllOf(Ge(0.5f), Le(2.0f))));
}

TEST(LcAsgd, KnowsAWorkerThatCameBackForANewOne) {
  const auto rule = rule_of(with_reading("normalised"), 2, 1);
  const Report report{.loss = 1, .t_comm_s = 1, .t_comp_s = 1};
  for (const int worker : {0, 1, 1, 1, 0}) rule->on_report(worker, report);
  rule->on_leave(0);
  for (const int worker : {0, 1}) rule->on_report(worker, report);
  EXPECT_THAT(rule->predictions()->actual_steps, ElementsAre(IsNan(), 0, 0, 3, IsNan(), 2));
  EXPECT_NO_THROW(rule->on_report(6, report)) << "more workers may come";
  EXPECT_NO_THROW(rule->on_leave(9));
}

// ---- the control

TEST(Literal, IsAsgdBitForBit) {
  for (const optim::OptimConfig& optim : {optim::OptimConfig{.weight_decay = 0.01}, optim::OptimConfig{.name = "adam"}}) {
    PsConfig asgd;
    asgd.rule = "asgd";
    Player plain(asgd, optim), literal(with_reading("literal"), optim), other(with_reading("squared"), optim);
    for (Player* player : {&plain, &literal, &other}) player->play(kScript);
    ASSERT_NE(literal.server().rule().predictions(), nullptr);
    EXPECT_EQ(literal.server().rule().predictions()->actual_loss.size(), 13u) << "it reported and was answered";
    EXPECT_EQ(literal.parameters(), plain.parameters());
    EXPECT_EQ(literal.pulled(), plain.pulled());
    EXPECT_EQ(literal.server().staleness(), plain.server().staleness());
    EXPECT_NE(other.parameters(), plain.parameters());
  }
}

// ---- Async-BN

TEST(AsyncBatchNorm, BlendsEveryReportIntoTheServersStatistics) {
  for (const std::string rule : {"asgd", "lc_asgd"}) {
    PsConfig config = with_reading("normalised");
    config.rule = rule, config.norm_share = 0.3;
    Server::Setup setup;
    setup.segments = {{0, 4}}, setup.length = setup.end = 4, setup.statistics = 100, setup.workers = 2;
    Server server(config, {}, setup);
    std::fill_n(server.statistics() + 50, 50, 1.0f);  // 50 means, then 50 variances
    Floats expected(100, 0);
    std::fill_n(expected.begin() + 50, 50, 1.0f);
    const float d = 0.3f;
    for (std::uint64_t number = 0; number < 10; ++number) {
      const Floats reported(drawn(number).begin(), drawn(number).begin() + 100);
      server.report(static_cast<int>(number % 2), {.loss = 1, .t_comm_s = 1, .t_comp_s = 1}, reported.data());
      for (std::size_t i = 0; i < 100; ++i) {
        const volatile float old = (1 - d) * expected[i], fresh = d * reported[i];  // each rounded by itself
        expected[i] = old + fresh;
      }
      EXPECT_EQ(Floats(server.statistics(), server.statistics() + 100), expected) << rule << ", report " << number;
    }
    server.report(0, {.loss = 1}, nullptr);
    EXPECT_EQ(Floats(server.statistics(), server.statistics() + 100), expected) << "a report without statistics";
  }
}

}  // namespace
}  // namespace paceline::ps
