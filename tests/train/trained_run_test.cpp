// What comes after training: evaluation of a run's checkpoint, and predictions of images.
#include "paceline/train/trained_run.h"

#include <ATen/ATen.h>

#include <cmath>

#include "paceline/data/tokenizer.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const auto kAsItWas = [](Config&) {};

std::function<void(Config&)> with(const std::string& assignment) {
  return [assignment](Config& config) { config.set(assignment); };
}

Evaluation evaluate_all(TrainedRun& run, data::Split split = data::Split::test) {
  return run.evaluate(split, [](std::int64_t) { return true; });
}

TEST(TrainedRun, AnEvaluationIsThatOfTheRunsEnd) {
  const Folder folder;
  const observe::RunEnded ended = Session(tiny_recipe()).to_end(folder.path());
  TrainedRun run(folder.path(), kAsItWas);
  EXPECT_EQ(run.position().step, kEpochs * kStepsPerEpoch);
  const Evaluation found = evaluate_all(run), training = evaluate_all(run, data::Split::train);
  EXPECT_EQ(found.samples, 40);
  EXPECT_EQ(found.loss, ended.test_loss);
  EXPECT_EQ(found.accuracy, ended.test_accuracy);
  EXPECT_EQ(training.samples, 16 * kStepsPerEpoch);
  EXPECT_NE(training.loss, found.loss);
}

TEST(TrainedRun, ARunOfManyWorkersIsEvaluatedByOne) {
  for (const char* setting : {"parallel.zero=3", "parallel.tensor=2", "parallel.pipeline=2"}) {
    const Folder folder;
    Recipe recipe = tiny_recipe();
    recipe.parallel.workers = 2, recipe.model.hidden = {16, 16};
    recipe.config().set(setting);
    const observe::RunEnded ended = run_in(folder.path(), recipe);
    TrainedRun run(folder.path(), kAsItWas);
    EXPECT_NEAR(evaluate_all(run).loss, ended.test_loss, 1e-5) << setting;
  }
}

TEST(TrainedRun, OtherDataMustFit) {
  const Folder folder;
  Session(tiny_recipe()).to_end(folder.path());
  TrainedRun fewer(folder.path(), with("data.test_samples=7"));
  EXPECT_EQ(evaluate_all(fewer).samples, 7);
  EXPECT_THAT(message_of<ConfigError>([&] { TrainedRun(folder.path(), with("data.shape=[1,9,9]")); }), HasSubstr("fc"));
  EXPECT_THAT(message_of<ConfigError>([&] { TrainedRun(folder.path(), with("data.classes=4")); }), HasSubstr("4"));
  const Folder empty;
  EXPECT_THAT(message_of<DataError>([&] { TrainedRun(empty.path(), kAsItWas); }),
              AllOf(HasSubstr(empty.path().string()), HasSubstr("checkpoint")));
}

TEST(TrainedRun, AnotherTextsCharactersAreRefused) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 13);
  put_bytes(folder / "a.txt", text);
  put_bytes(folder / "b.txt", text + "Z");
  Recipe recipe = tiny_recipe();
  recipe.model.network = "gpt", recipe.model.layers = 1, recipe.model.width = 8, recipe.model.heads = 2;
  recipe.data.name = "text", recipe.data.root = (folder / "a.txt").string(), recipe.data.context = 8;
  recipe.data.train_samples = recipe.data.test_samples = 0, recipe.data.batch = 4, recipe.train.epochs = 1;
  const observe::RunEnded ended = Session(recipe).to_end(folder / "run");
  TrainedRun run(folder / "run", kAsItWas);
  EXPECT_EQ(evaluate_all(run).loss, ended.test_loss);
  EXPECT_EQ(evaluate_all(run).targets, 8 * run.dataset(data::Split::test).size());
  EXPECT_EQ(run.dataset(data::Split::train).tokenizer()->vocabulary(), run.dataset(data::Split::train).info().classes);
  EXPECT_THAT(message_of<ConfigError>([&] { TrainedRun(folder / "run", with("data.root=" + (folder / "b.txt").string())); }),
              HasSubstr("b.txt"));
}

}  // namespace
}  // namespace paceline::train
