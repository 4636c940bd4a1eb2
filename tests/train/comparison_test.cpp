// Comparisons: what is run, what is refused, and what a folder of them says afterwards.
#include <cmath>

#include "central_runs.h"
#include "paceline/train/comparison.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Comparison, RunsWhatIsMissingAndNothingElse) {
  Recipe recipe = recipe_of("auto", "virtual");
  recipe.data.batch = 8;
  recipe.train.epochs = 1;
  recipe.compare.algorithms = "sgd; asgd; half: strategy.name=asgd optim.rate=0.05";
  recipe.compare.workers = {2}, recipe.compare.seeds = {1, 2};
  const Folder folder;
  const std::atomic<bool> stop = false;
  int started = 0;
  const auto told = [&](std::size_t, std::size_t all, const Contestant&, const Outcome* outcome) {
    EXPECT_EQ(all, 6u);
    started += outcome == nullptr;
  };
  const Comparison first = compare(recipe, folder.path(), 2, stop, told);
  EXPECT_EQ(started, 6);
  ASSERT_EQ(first.outcomes.size(), 6u);
  EXPECT_FALSE(first.stopped);
  EXPECT_EQ(first.outcomes[0].contestant.workers, 1);
  EXPECT_EQ(first.outcomes[2].contestant.algorithm, "asgd");
  EXPECT_GT(first.outcomes[2].mean_staleness, 0.5);
  EXPECT_NE(first.outcomes[2].errors, first.outcomes[3].errors);
  const Comparison second = compare(recipe, folder.path(), 1, stop, told);
  EXPECT_EQ(started, 6);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(second.outcomes[i].errors, first.outcomes[i].errors);
  recipe.optim.weight_decay = 0.01;  // another recipe: what is finished there is not thrown away
  EXPECT_THAT(message_of<ConfigError>([&] { compare(recipe, folder.path(), 2, stop, told); }), HasSubstr("--folder"));
  EXPECT_EQ(started, 6);
}

TEST(Comparison, AnErrorStandsForTheStatisticsItWasMeasuredWith) {
  Outcome served, alone, diverged;
  served.errors = {{"async", 2}, {"recomputed", 3}, {"worker", 4}};
  EXPECT_EQ(served.error_with("async"), 2);
  EXPECT_EQ(served.error_with("worker"), 4);
  alone.errors = {{"", 5}};
  EXPECT_EQ(alone.error_with(""), 5);
  EXPECT_EQ(alone.error_with("worker"), 5);  // its own running statistics
  EXPECT_EQ(alone.error_with("async"), std::nullopt);
  EXPECT_EQ(alone.error_with("recomputed"), std::nullopt);
  diverged.diverged = "the loss is not a number", diverged.errors = {{"", NAN}};
  EXPECT_TRUE(std::isnan(diverged.error_with("async").value()));
}

/// A finished run of lc_asgd whose predictions.csv is this.
std::optional<Outcome> outcome_with(const std::string& predictions) {
  const Folder folder;
  Recipe recipe;
  const std::string text = recipe.config().toml();
  write_atomically(folder.path() / "recipe.toml", text);
  write_atomically(folder.path() / "summary.json", R"({"epochs": 1, "seconds": 3, "steps": 6, "test_accuracy": 0.5, "server": {
      "mean_staleness": 1, "iteration_ms": 70, "predictor_ms": 2, "loss_predictor_ms": 1, "step_predictor_ms": 1,
      "virtual_seconds": 9, "staleness": []}})");
  write_atomically(folder.path() / "predictions.csv", predictions);
  return read_outcome({.algorithm = "lc_asgd"}, folder.path(), text);
}

TEST(Outcome, ReadsPredictionsByTheNamesOfTheirColumns) {
  const auto outcome = outcome_with("report,actual_loss,predicted_loss,actual_steps\n1,0.5,0.25,nan\r\n2,1e-3,2,3\n");
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->predicted_loss, (std::vector<double>{0.25, 2}));
  EXPECT_EQ(outcome->actual_loss, (std::vector<double>{0.5, 1e-3}));
  EXPECT_TRUE(std::isnan(outcome->actual_steps.at(0)));
  EXPECT_EQ(outcome->measured_iteration_ms, 500);  // the clock was virtual: 6 minibatches in 3 s, one after the other
  EXPECT_EQ(outcome->iteration_ms, 70);
}

TEST(Outcome, NamesTheCellOfAPredictionThatIsNone) {
  const std::string names = "report,predicted_loss,actual_loss\n1,2,3\n";
  EXPECT_THAT(message_of<DataError>([&] { outcome_with(names + "2,0.5x,1\n"); }),
              AllOf(HasSubstr("predictions.csv"), HasSubstr("line 3"), HasSubstr("predicted_loss"), HasSubstr("0.5x")));
  EXPECT_THAT(message_of<DataError>([&] { outcome_with(names + "2,,1\n"); }), AllOf(HasSubstr("line 3"), HasSubstr("predicted_loss")));
  EXPECT_THAT(message_of<DataError>([&] { outcome_with(names + "2,1\n"); }), AllOf(HasSubstr("line 3"), HasSubstr("2 values")));
}

TEST(Comparison, EachRunHasTheStragglersAmongItsWorkers) {
  Recipe recipe = recipe_of("auto", "virtual");
  recipe.data.batch = 8, recipe.train.epochs = 1;
  recipe.compare.algorithms = "sgd; asgd", recipe.compare.workers = {2, 4};
  recipe.timing.slow_workers = {1, 3}, recipe.timing.slow_links = {3}, recipe.timing.slow_factor = 5;
  const Folder folder;
  const std::atomic<bool> stop = false;
  const Comparison found = compare(recipe, folder.path(), 1, stop, [](auto&&...) {});
  ASSERT_EQ(found.outcomes.size(), 3u);
  EXPECT_EQ(found.outcomes[0].stragglers, "");
  EXPECT_EQ(found.outcomes[1].stragglers, "worker 1 computes 5×");
  EXPECT_EQ(found.outcomes[2].stragglers, "worker 1, 3 computes 5×, link of worker 3 takes 1×");
}

TEST(Comparison, RefusesBadEntries) {
  const auto refusal = [](const std::string& algorithms, const std::function<void(Recipe&)>& change = nullptr) {
    Recipe recipe = recipe_of("auto", "virtual");
    recipe.compare.algorithms = algorithms;
    if (change) change(recipe);
    const std::atomic<bool> stop = false;
    const Folder folder;
    const auto told = [](auto&&...) { ADD_FAILURE() << "a run was announced"; };
    return message_of<ConfigError>([&] { compare(recipe, folder.path(), 1, stop, told); });
  };
  EXPECT_THAT(refusal(" ; "), HasSubstr("compare.algorithms is empty"));
  EXPECT_THAT(refusal("asgd; asgd"), HasSubstr("twice"));
  EXPECT_THAT(refusal("mine: optim.rat=3"), HasSubstr("'mine'"));
  EXPECT_THAT(refusal("asgd", [](Recipe& r) { r.compare.seeds = {1, 2, 1}; }), HasSubstr("compare.seeds names 1 twice"));
  EXPECT_THAT(refusal("asgd", [](Recipe& r) { r.compare.seeds = {}; }), HasSubstr("compare.seeds is empty"));
  EXPECT_THAT(refusal("asgd", [](Recipe& r) { r.compare.workers = {}; }), HasSubstr("compare.workers is empty"));
  EXPECT_THAT(refusal("asgd", [](Recipe& r) { r.compare.workers = {4, 4}; }), HasSubstr("compare.workers names 4 twice"));
  EXPECT_THAT(refusal("sgd; asgd", [](Recipe& r) { r.timing.slow_workers = {4}; }), HasSubstr("no run of this comparison has a worker 4"));
  EXPECT_THAT(refusal("sgd; asgd; mine: strategy.name=asgd timing.slow_links=[9]"), HasSubstr("no run of this comparison has a worker 9"));
  EXPECT_THAT(refusal("sgd", [](Recipe& r) { r.data.held_out = 10; }), AllOf(HasSubstr("data.held_out=10"), HasSubstr("compare.held_out")));
  EXPECT_THAT(refusal("a: strategy.name=asgd optim.rate=0.1|0.2", [](Recipe& r) { r.compare.held_out = 240; }),
              AllOf(HasSubstr("compare.held_out=240"), HasSubstr(" 24")));
  EXPECT_THAT(refusal("asgd; mine: strategy.name=asgd ps.executor=processes"), HasSubstr("ps.executor=virtual or threads"));
}

TEST(Comparison, RecipesThatComeAlongCompareWhatCanBe) {
#if !PACELINE_WITH_TOML
  GTEST_SKIP() << "built without a TOML reader";
#endif
  const auto folder = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "recipes";
  int found = 0;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    Recipe recipe;
    recipe.config().load(item.path());
    if (recipe.compare.algorithms == CompareConfig().algorithms) continue;
    ++found;
    for (const Entrant& entrant : entrants(recipe.compare))
      for (const auto& point : entrant.points) {
        Contestant contestant = entrant.contestant;
        contestant.point = point;
        EXPECT_NO_THROW(recipe_of(recipe, contestant, "runs")) << item.path() << ": " << contestant.folder();
      }
  }
  EXPECT_GE(found, 7);
}

TEST(Comparison, HasItsFolderToItself) {
  Recipe recipe = recipe_of("auto", "virtual");
  recipe.compare.algorithms = "sgd", recipe.compare.seeds = {1};
  const Folder folder;
  const std::atomic<bool> stop = false;
  const auto nothing = [](auto&&...) { ADD_FAILURE() << "a run was announced"; };
  const auto told = [&](std::size_t, std::size_t, const Contestant&, const Outcome* outcome) {
    if (outcome) return;  // it is running: the same command in another terminal
    EXPECT_THAT(message_of<ConfigError>([&] { compare(recipe, folder.path(), 1, stop, nothing); }),
                AllOf(HasSubstr(folder.path().string()), HasSubstr("another process")));
  };
  EXPECT_EQ(compare(recipe, folder.path(), 1, stop, told).outcomes.size(), 1u);
}

TEST(Comparison, StoppedItKeepsTheRunsThatAreDone) {
  Recipe recipe = recipe_of("auto", "virtual");
  recipe.compare.algorithms = "a: strategy.name=asgd optim.rate=0.1|0.2; long: strategy.name=asgd train.epochs=100000";
  recipe.compare.workers = {2}, recipe.compare.seeds = {1}, recipe.compare.held_out = 40;
  const Folder folder;
  std::atomic<bool> stop = false;
  const auto told = [&](std::size_t, std::size_t, const Contestant& who, const Outcome*) { stop = who.algorithm == "long"; };
  EXPECT_TRUE(compare(recipe, folder.path(), 1, stop, told).stopped);
  EXPECT_EQ(count_finished(folder.path()), 3u) << "two on held-out samples, one on the test set, and none that was stopped";
}

TEST(Comparison, ARunThatFailsEndsTheOthersToo) {
  Recipe recipe = recipe_of("auto", "virtual");
  recipe.compare.algorithms = "long: strategy.name=asgd train.epochs=2000; bad: strategy.name=asgd";
  recipe.compare.workers = {2}, recipe.compare.seeds = {1};
  const Folder folder;
  const std::atomic<bool> stop = false;
  const auto told = [&](std::size_t, std::size_t, const Contestant& who, const Outcome*) {
    if (who.algorithm == "bad") throw DataError("cat.jpg", "is damaged");
  };
  EXPECT_THAT(message_of<DataError>([&] { compare(recipe, folder.path(), 2, stop, told); }), HasSubstr("cat.jpg"));
  EXPECT_THAT(bytes_in(folder / "long-2w-seed1" / "summary.json"), HasSubstr("stopped"));
}

}  // namespace
}  // namespace paceline::train
