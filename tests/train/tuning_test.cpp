// Honest comparisons: grids, choices on held-out samples, paired differences, times to accuracies, predictors against simpler ones.
#include <cmath>

#include "central_runs.h"
#include "paceline/train/comparison.h"
#include "paceline/train/paired.h"
#include "paceline/train/predictor_scores.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Point = std::vector<std::string>;

Outcome tuned(const std::string& algorithm, const Point& point, double error) {
  Outcome outcome;
  outcome.contestant = {.algorithm = algorithm, .point = point};
  outcome.final_error = error;
  return outcome;
}

TEST(Entrants, HaveTheProductOfTheirAxes) {
  CompareConfig config;
  config.algorithms = "sgd; lc: strategy.name=lc_asgd ps.lc_lambda=0.1|1; fixed: strategy.name=asgd optim.rate=0.3";
  config.grid = "optim.rate=0.1|0.2|0.4";
  config.clocks = "even: timing.shape=100; slow: timing.slow_workers=[1] timing.slow_factor=3";
  const std::vector<Entrant> all = entrants(config);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].contestant.clock, "even");
  EXPECT_THAT(all[0].points, ElementsAre(Point{"optim.rate=0.1"}, Point{"optim.rate=0.2"}, Point{"optim.rate=0.4"}));
  EXPECT_EQ(all[1].points.size(), 6u);
  EXPECT_EQ(all[1].points[4], (Point{"ps.lc_lambda=1", "optim.rate=0.2"}));
  EXPECT_THAT(all[1].contestant.settings, ElementsAre("strategy.name=lc_asgd"));
  EXPECT_THAT(all[2].points, ElementsAre(Point{})) << "it has a rate of its own";
  EXPECT_FALSE(all[2].chooses());
  EXPECT_EQ(all[5].contestant.clock_settings.size(), 2u);
}

TEST(Entrants, RefuseWhatMakesNoSense) {
  const auto refusal = [](const std::function<void(CompareConfig&)>& change) {
    CompareConfig config;
    config.algorithms = "sgd; asgd";
    change(config);
    return message_of<ConfigError>([&] { entrants(config); });
  };
  EXPECT_THAT(refusal([](auto& c) { c.grid = "optim.rate=0.1|0.1"; }), AllOf(HasSubstr("optim.rate"), HasSubstr("0.1 twice")));
  EXPECT_THAT(refusal([](auto& c) { c.grid = "optim.rate"; }), AllOf(HasSubstr("compare.grid"), HasSubstr("no values")));
  EXPECT_THAT(refusal([](auto& c) { c.grid = "train.seed=1|2"; }), AllOf(HasSubstr("train.seed"), HasSubstr("compare.seeds")));
  EXPECT_THAT(refusal([](auto& c) { c.algorithms = "a: strategy.name=asgd data.held_out=5"; }), HasSubstr("compare.held_out"));
  EXPECT_THAT(refusal([](auto& c) { c.algorithms = "a: strategy.name=asgd optim.rate=|"; }), HasSubstr("no values"));
  EXPECT_THAT(refusal([](auto& c) { c.clocks = "odd: optim.rate=1"; }), AllOf(HasSubstr("compare.clocks"), HasSubstr("optim.rate=1")));
  EXPECT_THAT(refusal([](auto& c) { c.clocks = "a: timing.shape=1; a: timing.shape=2"; }), HasSubstr("'a' twice"));
  EXPECT_THAT(refusal([](auto& c) { c.references = "asgd; dc_asgd"; }), AllOf(HasSubstr("compare.references"), HasSubstr("dc_asgd")));
  EXPECT_THAT(refusal([](auto& c) { c.grid = "optim.rate=0.1|0.2", c.tuning_seeds = {}; }), HasSubstr("compare.tuning_seeds"));
  EXPECT_THAT(refusal([](auto& c) { c.tuning_seeds = {3, 3}; }), HasSubstr("compare.tuning_seeds names 3 twice"));
}

TEST(Choice, IsTheLeastMeanErrorAndSaysWhereAGridEnds) {
  const Entrant entrant{.contestant = {.algorithm = "a"}, .points = {{"optim.rate=0.1"}, {"optim.rate=0.2"}, {"optim.rate=0.4"}}};
  std::vector<Outcome> outcomes = {tuned("a", {"optim.rate=0.1"}, 8), tuned("a", {"optim.rate=0.1"}, 12),
                                   tuned("a", {"optim.rate=0.2"}, 9), tuned("a", {"optim.rate=0.2"}, 10),
                                   tuned("a", {"optim.rate=0.4"}, 1), tuned("a", {"optim.rate=0.4"}, NAN),
                                   tuned("b", {"optim.rate=0.1"}, 0)};
  Choice choice = choose(entrant, outcomes);
  EXPECT_THAT(choice.contestant.point, ElementsAre("optim.rate=0.2")) << "0.4 diverged once, and b is somebody else";
  EXPECT_DOUBLE_EQ(choice.tried[0].error, 10);
  EXPECT_DOUBLE_EQ(choice.tried[1].error, 9.5);
  EXPECT_TRUE(std::isnan(choice.tried[2].error));
  EXPECT_THAT(choice.edges, ElementsAre());
  outcomes[0].final_error = 5;
  choice = choose(entrant, outcomes);
  EXPECT_THAT(choice.contestant.point, ElementsAre("optim.rate=0.1"));
  EXPECT_THAT(choice.edges, ElementsAre("optim.rate"));
  for (Outcome& outcome : outcomes) outcome.final_error = NAN;
  choice = choose(entrant, outcomes);
  EXPECT_TRUE(choice.all_diverged);
  EXPECT_THAT(choice.contestant.point, ElementsAre("optim.rate=0.1"));
}

TEST(Choice, AGridAtWhoseEdgeTheBestLiesGoesOnByItsOwnRatio) {
  Entrant entrant{.contestant = {.algorithm = "a"}, .points = {{"optim.rate=0.1"}, {"optim.rate=0.2"}, {"optim.rate=0.8"}}};
  const auto beyond = [&](std::vector<double> errors) {
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < errors.size(); ++i) outcomes.push_back(tuned("a", entrant.points[i], errors[i]));
    return points_beyond(entrant, choose(entrant, outcomes));
  };
  EXPECT_THAT(beyond({1, 2, 3}), ElementsAre(Point{"optim.rate=0.05"}));
  EXPECT_THAT(beyond({3, 2, 1}), ElementsAre(Point{"optim.rate=3.2"})) << "0.8 is four times its neighbour";
  EXPECT_THAT(beyond({3, 1, 2}), ElementsAre());
  EXPECT_THAT(beyond({NAN, NAN, NAN}), ElementsAre(Point{"optim.rate=0.05"})) << "a smaller rate may not diverge";
  entrant.points = {{"ps.group=0"}, {"ps.group=2"}};
  EXPECT_THAT(beyond({1, 2}), ElementsAre()) << "nothing has a ratio to 0";
  entrant.points = {{"ps.reading=sqrt"}, {"ps.reading=squared"}};
  EXPECT_THAT(beyond({1, 2}), ElementsAre());
  entrant.points = {{"optim.rate=0.2"}};
  EXPECT_THAT(beyond({NAN}), ElementsAre()) << "one value has no ratio";
}

TEST(Choice, AWiderGridHasAllValuesOfItsOtherAxes) {
  Entrant entrant{.contestant = {.algorithm = "a"}, .points = {}};
  std::vector<Outcome> outcomes;
  for (const char* lambda : {"ps.lc_lambda=0.1", "ps.lc_lambda=1"})
    for (const char* rate : {"optim.rate=1", "optim.rate=2", "optim.rate=4"}) entrant.points.push_back({lambda, rate});
  for (std::size_t i = 0; i < 6; ++i) outcomes.push_back(tuned("a", entrant.points[i], i == 4 ? 1 : 2));
  EXPECT_THAT(points_beyond(entrant, choose(entrant, outcomes)),
              ElementsAre(Point{"ps.lc_lambda=10", "optim.rate=1"}, Point{"ps.lc_lambda=10", "optim.rate=2"},
                          Point{"ps.lc_lambda=10", "optim.rate=4"}));
  outcomes[5].final_error = 0;  // now both lie at an edge
  EXPECT_EQ(points_beyond(entrant, choose(entrant, outcomes)).size(), 3u + 3u);
  entrant.points.push_back({"ps.lc_lambda=1", "optim.rate=8"}), entrant.added = 1;
  const Choice choice = choose(entrant, outcomes);
  EXPECT_FALSE(choice.tried[5].added);
  EXPECT_TRUE(choice.tried[6].added);
}

TEST(Paired, DifferencesHaveTheirStandardErrors) {
  const std::pair<double, double> pairs[] = {{10, 9}, {12, 9}, {NAN, 1}, {11, 9}};
  const Difference found = paired_difference(pairs);
  EXPECT_EQ(found.pairs, 3);
  EXPECT_DOUBLE_EQ(found.mean, 2);
  EXPECT_DOUBLE_EQ(found.standard_error, 1 / std::sqrt(3));  // deviation 1
  EXPECT_TRUE(std::isnan(paired_difference(std::span(pairs).first(1)).standard_error));
  EXPECT_TRUE(std::isnan(paired_difference({}).mean));
}

TEST(Paired, ATimeIsThatOfTheFirstEvaluationThatHadTheAccuracy) {
  Outcome outcome;
  outcome.error = {60, 8, 30, 5}, outcome.time = {1, 2, 3, 4};
  EXPECT_EQ(time_to(outcome, 40), 1);
  EXPECT_EQ(time_to(outcome, 41), 2);
  EXPECT_EQ(time_to(outcome, 92), 2);
  EXPECT_EQ(time_to(outcome, 93), 4);
  EXPECT_EQ(time_to(outcome, 96), std::nullopt);
}

TEST(PredictorScores, HoldPredictionsAgainstSimplerOnes) {
  Outcome outcome;
  for (int i = 0; i < 100; ++i) {
    outcome.actual_loss.push_back(i), outcome.predicted_loss.push_back(i + 2);  // off by 2; the last value is off by 1
    outcome.steps_ahead.push_back(3), outcome.delay_loss.push_back(3 * i + 6 + 5);
    outcome.reporter.push_back(i % 2), outcome.actual_steps.push_back(i % 2 ? 4 : 1), outcome.predicted_steps.push_back(2);
  }
  outcome.actual_steps[0] = outcome.predicted_steps[0] = NAN;
  const auto scores = score_predictors(outcome);
  ASSERT_EQ(scores.size(), 6u);
  const auto& own = scores[0];
  EXPECT_EQ(own.predictor, "own");
  EXPECT_DOUBLE_EQ(own.loss, 2);
  EXPECT_DOUBLE_EQ(own.sum, 5);                   // of i + 1, i + 2, i + 3
  EXPECT_NEAR(own.steps, std::sqrt(2.5), 1e-12);  // 2 for 1, and 2 for 4
  const auto& last = scores[1];
  EXPECT_EQ(last.predictor, "last");
  EXPECT_DOUBLE_EQ(last.loss, 1);
  EXPECT_DOUBLE_EQ(last.sum, 6);    // three times i
  EXPECT_DOUBLE_EQ(last.steps, 0);  // each worker's own
  EXPECT_EQ(scores[2].predictor, "ema");
  EXPECT_NEAR(scores[2].loss, 10, 0.8);  // lags by 1 / 0.1
  EXPECT_EQ(scores[3].predictor, "constant");
  EXPECT_GT(scores[3].loss, 25);
  EXPECT_EQ(scores[4].predictor, "shuffled");
  EXPECT_GT(scores[4].loss, 25);
  EXPECT_EQ(scores[5].predictor, "oracle");
  EXPECT_LT(scores[5].loss, 3);
  EXPECT_TRUE(score_predictors(Outcome()).empty());
}

TEST(SlowTuning, ChoosesOnHeldOutSamplesAndGoesOnWithTheBest) {
  Recipe recipe = recipe_of("auto", "virtual");
  recipe.data.batch = 8, recipe.train.epochs = 2;
  recipe.compare.algorithms = "sgd; asgd; fixed: strategy.name=asgd optim.rate=0.02";
  recipe.compare.grid = "optim.rate=1e-9|0.05";
  recipe.compare.workers = {2}, recipe.compare.seeds = {1, 2}, recipe.compare.held_out = 40;
  const Folder folder;
  const std::atomic<bool> stop = false;
  std::size_t started = 0, most = 0;
  const auto told = [&](std::size_t done, std::size_t all, const Contestant&, const Outcome* outcome) {
    EXPECT_EQ(all, 4u + 6u);
    started += outcome == nullptr, most = std::max(most, done);
  };
  const Comparison found = compare(recipe, folder.path(), 1, stop, told);
  EXPECT_EQ(started, 10u);
  EXPECT_EQ(most, 10u);
  ASSERT_EQ(found.choices.size(), 2u);
  for (const Choice& choice : found.choices) EXPECT_THAT(choice.contestant.point, ElementsAre("optim.rate=0.05"));
  ASSERT_EQ(found.outcomes.size(), 6u);
  const auto setting = [&](const Contestant& who, const char* line) {
    return bytes_in(folder / who.folder() / "recipe.toml").find(line) != std::string::npos;
  };
  for (const Outcome& outcome : found.outcomes) {
    EXPECT_TRUE(setting(outcome.contestant, "held_out = 0\n"));
    EXPECT_TRUE(setting(outcome.contestant, outcome.contestant.algorithm == "fixed" ? "\nrate = 0.02\n" : "\nrate = 0.05\n"));
    EXPECT_TRUE(setting(outcome.contestant, outcome.contestant.alone() ? "transfers = false\n" : "transfers = true\n"));
  }
  Contestant tried = found.choices[1].contestant;
  tried.tuning = true, tried.seed = 101;
  EXPECT_TRUE(setting(tried, "held_out = 40\n"));
  compare(recipe, folder.path(), 1, stop, told);
  EXPECT_EQ(started, 10u) << "everything was there";
}

TEST(SlowTuning, WidensAGridUntilTheBestLiesInsideOrOftenEnough) {
  Recipe recipe = recipe_of("auto", "virtual", 2);
  recipe.data.batch = 8, recipe.data.train_samples = 80, recipe.train.epochs = 1;
  recipe.compare.algorithms = "asgd; wild: strategy.name=asgd optim.rate=1e30|1e32";
  recipe.compare.grid = "optim.rate=0.01|0.02";
  recipe.compare.workers = {2}, recipe.compare.held_out = 40, recipe.compare.widen = 2;
  const Folder folder;
  const std::atomic<bool> stop = false;
  std::size_t started = 0, most = 0, last = 0;
  const auto told = [&](std::size_t done, std::size_t all, const Contestant&, const Outcome* outcome) {
    started += outcome == nullptr, most = std::max(most, done), last = all;
  };
  const Comparison found = compare(recipe, folder.path(), 1, stop, told);
  ASSERT_EQ(found.choices.size(), 2u);
  const Choice &inside = found.choices[0], &wild = found.choices[1];
  EXPECT_GE(inside.tried.size(), 3u) << "of two values each is at the edge";
  EXPECT_TRUE(inside.edges.empty() || inside.tried.size() == 4u);
  EXPECT_TRUE(inside.tried[2].point == Point{"optim.rate=0.005"} || inside.tried[2].point == Point{"optim.rate=0.04"});
  EXPECT_TRUE(inside.tried[2].added);
  EXPECT_FALSE(inside.tried[1].added);
  ASSERT_EQ(wild.tried.size(), 4u) << "twice, and no more";
  EXPECT_EQ(wild.tried[3].point, Point{"optim.rate=1e+26"});
  EXPECT_TRUE(wild.all_diverged);
  EXPECT_EQ(started, inside.tried.size() + wild.tried.size() + 2);
  EXPECT_EQ(most, started);
  EXPECT_EQ(last, started);
  EXPECT_EQ(count_finished(folder.path()), started);
  compare(recipe, folder.path(), 1, stop, told);
  EXPECT_EQ(most, started) << "everything was there";
}

}  // namespace
}  // namespace paceline::train
