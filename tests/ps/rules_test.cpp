// Every update rule, with every optimizer that it goes with, under a scripted order of events against the formulas in double.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <set>

#include "paceline/base/error.h"
#include "tests/ps/oracle.h"
#include "tests/ps/player.h"

namespace paceline::ps {
namespace {

/// Of the largest parameter. Floats round to 6e-8 of a number, and 14 updates of a few operations each stay below 1e-6; gap-aware divides
/// differences of parameters by differences of parameters, which have fewer digits.
double tolerance(const PsConfig& ps) { return ps.rule == "gap_aware" ? 2e-5 : 1e-6; }

void expect_close(const Floats& actual, const Doubles& expected, double bound, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0, worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(error <= worst)) worst = error, where = i;
  }
  EXPECT_LE(worst, bound * largest) << what << ": element " << where << " is " << actual[where] << " and not " << expected[where];
}

class EveryRule : public testing::TestWithParam<RuleCase> {};

TEST_P(EveryRule, MakesTheUpdatesOfItsFormula) {
  const auto& [name, ps, optim, changes] = GetParam();
  Player player(ps, optim);
  Oracle oracle(ps, optim, kTensors, first_weights(), 3);
  for (const char letter : kScript) {
    const std::string what = std::string(1, letter) + " as event " + std::to_string(player.event());
    const float rate = rate_at(player.event());
    const double bound = tolerance(ps);
    Doubles pushed = doubles(player.gradient());
    player.play({&letter, 1});
    if (pulls(letter)) {
      expect_close(player.pulled(), oracle.pull(worker_of(letter), rate), bound, what);
    } else {
      oracle.push(worker_of(letter), pushed, rate, player.scale());
      if (ps.rule == "easgd") expect_close(player.pushed(), pushed, bound, what);
      expect_close(player.parameters(), oracle.weights(), bound, what);
    }
    if (HasFailure()) break;  // all that follows would fail as well
  }
  EXPECT_EQ(player.server().version(), 14);
  EXPECT_EQ(player.server().staleness(), (std::map<std::int64_t, std::int64_t>{{0, 5}, {1, 2}, {2, 4}, {3, 2}, {4, 1}}));
  EXPECT_EQ(player.server().staleness(), oracle.staleness());
}

// Otherwise a rule that does nothing would pass for one whose effect is small.
TEST_P(EveryRule, IsNotAsgdUnderAnotherName) {
  const auto& [name, ps, optim, changes] = GetParam();
  Player player(ps, optim), asgd(of_rule("asgd"), optim);
  player.play(kScript), asgd.play(kScript);
  const Floats one = player.parameters(), other = asgd.parameters();
  double most = 0;
  for (std::size_t i = 0; i < one.size(); ++i) most = std::max(most, std::abs(static_cast<double>(one[i]) - other[i]));
  if (changes) EXPECT_GT(most, 1e-3);
  else EXPECT_EQ(most, 0);
}

TEST_P(EveryRule, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto& [name, ps, optim, changes] = GetParam();
  const int usual = omp_get_max_threads();
  std::vector<Floats> results;
  for (const int threads : {1, 2}) {
    omp_set_num_threads(threads);
    Player player(ps, optim);
    player.play(kScript);
    results.push_back(player.parameters());
    results.push_back(player.pulled());
  }
  omp_set_num_threads(usual);
  EXPECT_EQ(results[2], results[0]);
  EXPECT_EQ(results[3], results[1]);
}

INSTANTIATE_TEST_SUITE_P(Ps, EveryRule, testing::ValuesIn(rule_cases()), [](const auto& one) { return one.param.name; });

TEST(Rules, AreAllInTheTableAboveAndNoOtherNameIs) {
  std::set<std::string> tested, known;
  for (const RuleCase& one : rule_cases()) tested.insert(one.ps.rule);
  for (const auto& row : update_rules()) known.insert(std::string(row.key));
  EXPECT_EQ(tested, known);
  EXPECT_THROW(make_rule({.config = of_rule("no_such_rule"), .optim = {}, .workers = 3}), ConfigError);
}

TEST(Rules, KnowHowManyStepsAWorkerMakesByItself) {
  PsConfig config;
  config.period = 7;
  for (const auto& row : update_rules()) {
    const std::string rule(row.key);
    config.rule = rule;
    EXPECT_EQ(make_rule({.config = config, .optim = {}, .workers = 3})->period(),
              rule == "downpour" || rule == "easgd" || takes_steps(rule) ? 7 : 1)
        << rule;
  }
}

TEST(Rules, RefuseWhatTheyCanNotDo) {
  EXPECT_THROW(validate(of_rule("dana"), {.name = "adam"}, 3), ConfigError);
  EXPECT_THROW(validate(of_rule("dana"), {.nesterov = true}, 3), ConfigError);
  EXPECT_THROW(validate(of_rule("dana"), {.clip_norm = 1}, 3), ConfigError);
  EXPECT_NO_THROW(validate(of_rule("dana"), {}, 3));
  for (const std::string rule : {"dana", "easgd"})
    for (const auto& row : consistencies()) {
      PsConfig config = of_rule(rule);
      config.consistency = std::string(row.key);
      if (config.consistency == "asp" || config.consistency == "ssp") EXPECT_NO_THROW(validate(config, {}, 3)) << rule << ' ' << row.key;
      else EXPECT_THROW(validate(config, {}, 3), ConfigError) << rule << ' ' << row.key;
    }
  for (const auto& row : update_rules()) {
    PsConfig config = of_rule(std::string(row.key));
    EXPECT_NO_THROW(validate(config, {}, 3)) << row.key;
    if (!takes_steps(config.rule)) continue;
    config.optimizer = "server";
    EXPECT_THROW(validate(config, {}, 3), ConfigError) << row.key;
  }
  PsConfig parts = of_rule("stability_cap"), hasty = of_rule("delayed_nesterov"), steps = of_rule("gap_aware");
  parts.servers = 2;
  EXPECT_THROW(validate(parts, {}, 3), ConfigError);
  hasty.momentum_every = 4, hasty.momentum_share = 0.3;  // above 1/4
  EXPECT_THROW(validate(hasty, {}, 3), ConfigError);
  steps.optimizer = "worker";
  EXPECT_NO_THROW(validate(steps, {}, 3));
  steps.gap_rate = "maximal";
  EXPECT_THROW(validate(steps, {}, 3), ConfigError);
}

TEST(Rules, SlowerWorkersMakeFewerSteps) {
  PsConfig config = of_rule("delayed_nesterov");
  config.period = 12, config.speeds = {0.5, 1, 0.25, 0.01};
  validate(config, {}, 4);
  std::vector<std::int64_t> periods;
  for (int worker = 0; worker < 4; ++worker) periods.push_back(period_of(config, config.period, worker));
  EXPECT_EQ(periods, (std::vector<std::int64_t>{6, 12, 3, 1}));
  EXPECT_THROW(validate(config, {}, 3), ConfigError);
  config.rule = "downpour", config.optimizer = "server";  // its workers have no optimizers of their own
  EXPECT_THROW(validate(config, {}, 4), ConfigError);
}

}  // namespace
}  // namespace paceline::ps
