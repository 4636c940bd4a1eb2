// The same recipe gives the same bits: run again, prefetched by other threads, or stopped anywhere and resumed.
#include "support.h"

namespace paceline::train {
namespace {

struct Case {
  std::string name;
  std::function<void(Recipe&)> change;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::filesystem::path text_file() {
  static const Folder folder;
  const auto file = folder / "text.txt";
  if (!std::filesystem::exists(file)) {
    std::string text;
    for (int i = 0; i < 160; ++i) text += "the quick brown fox no. " + std::to_string(i * 7919 % 1000) + "\n";
    put_bytes(file, text);
  }
  return file;
}

void make_gpt(Recipe& recipe) {
  recipe.model.network = "gpt";
  recipe.model.layers = 2, recipe.model.width = 16, recipe.model.heads = 2;
  recipe.data.name = "text";
  recipe.data.root = text_file().string();
  recipe.data.context = 16;
  recipe.data.test_samples = 8;
  recipe.data.augment = true;
  recipe.optim.name = "adamw";
  recipe.optim.rate = 0.003;
  recipe.optim.weight_decay = 0.1;
}

const std::vector<Case> kCases = {
    {"plain", [](Recipe&) {}},
    {"nesterov",
     [](Recipe& r) {
       r.optim.nesterov = true;
       r.optim.weight_decay = 1e-3;
     }},
    {"dropout", [](Recipe& r) { r.model.dropout = 0.3; }},
    {"adam_clipped",
     [](Recipe& r) {
       r.optim.name = "adam";
       r.optim.rate = 0.01;
       r.optim.clip_norm = 0.2;
     }},
    {"lamb", [](Recipe& r) { r.optim.name = "lamb"; }},
    {"lars", [](Recipe& r) { r.optim.name = "lars"; }},
    {"micro_batches",
     [](Recipe& r) {
       r.train.micro_batches = 3;  // does not divide the batch
       r.model.dropout = 0.2;
     }},
    {"growing_batch",
     [](Recipe& r) {
       r.schedule.batch_milestones = {1, 2};
       r.schedule.largest_batch = 48;
     }},
    {"ragged_last_batch",
     [](Recipe& r) {
       r.data.batch = 18;
       r.data.drop_last = false;
     }},
    {"convolutions_and_augmentation",
     [](Recipe& r) {
       r.model.network = "lenet5";
       r.data.shape = {3, 28, 28};
       r.data.augment = true;
       r.data.cutout = 4;
       r.train.label_smoothing = 0.1;
     }},
    {"gpt", make_gpt},
    {"gpt_with_dropout",
     [](Recipe& r) {
       make_gpt(r);
       r.model.dropout = 0.2;
       r.optim.clip_norm = 0.5;
       r.train.micro_batches = 2;
     }},
};

class Repeat : public testing::TestWithParam<Case> {
 protected:
  Repeat() { GetParam().change(recipe); }
  Recipe recipe = tiny_recipe();
};

void expect_same(const observe::RunEnded& a, const observe::RunEnded& b) {
  EXPECT_EQ(a.state_hash, b.state_hash);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.epochs, b.epochs);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.train_loss, b.train_loss);
  EXPECT_EQ(a.test_loss, b.test_loss);
  EXPECT_EQ(a.test_accuracy, b.test_accuracy);
}

TEST_P(Repeat, TwoRunsEndInTheSameState) {
  const auto first = train(recipe);
  expect_same(first, train(recipe));
  EXPECT_EQ(first.epochs, kEpochs);
  EXPECT_TRUE(first.stopped.empty());
  recipe.train.seed = 2;
  EXPECT_NE(train(recipe).state_hash, first.state_hash);
}

TEST_P(Repeat, PrefetchingThreadsChangeNothing) {
  const auto expected = train(recipe);
  for (std::int64_t threads : {1, 2}) {
    recipe.data.threads = threads;
    recipe.data.prefetch = threads + 1;
    expect_same(train(recipe), expected);
  }
}

TEST_P(Repeat, ARunThatIsStoppedAndResumedEndsAsOneThatWasNot) {
  const auto expected = train(recipe);
  for (std::int64_t step : {std::int64_t{1}, std::int64_t{4}, kStepsPerEpoch, kStepsPerEpoch + 2}) {
    if (step >= expected.steps) continue;
    const Folder folder;
    const auto stopped = Session(recipe).stop_after(step).to_end(folder.path());
    EXPECT_EQ(stopped.steps, step);
    EXPECT_FALSE(stopped.stopped.empty());
    EXPECT_NE(stopped.state_hash, expected.state_hash);
    expect_same(Session(recipe).resume(folder.path()).to_end(folder.path()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Repeat, testing::ValuesIn(kCases), [](const auto& test) { return test.param.name; });

TEST(Resume, AfterEverySingleStep) {
  const Recipe recipe = tiny_recipe();
  const auto expected = train(recipe);
  const Folder folder;
  auto ended = Session(recipe).stop_after(1).to_end(folder.path());
  for (std::int64_t step = 2; step < expected.steps; ++step) {
    ended = Session(recipe).resume(folder.path()).stop_after(step).to_end(folder.path());
    ASSERT_EQ(ended.steps, step);
  }
  expect_same(Session(recipe).resume(folder.path()).to_end(folder.path()), expected);
}

TEST(Resume, AfterTheStepsThatTheRecipeAllowedWithMoreOfThem) {
  Recipe recipe = tiny_recipe();
  const auto expected = train(recipe);
  const Folder folder;
  recipe.train.steps = kStepsPerEpoch + 3;
  const auto part = Session(recipe).to_end(folder.path());
  EXPECT_EQ(part.steps, kStepsPerEpoch + 3);
  EXPECT_TRUE(part.stopped.empty()) << "the end that the recipe asked for is no interruption";
  EXPECT_TRUE(std::isfinite(part.test_loss));
  recipe.train.steps = 0;
  expect_same(Session(recipe).resume(folder.path()).to_end(folder.path()), expected);
}

TEST(Resume, OfAFinishedRunChangesNothing) {
  const Recipe recipe = tiny_recipe();
  const Folder folder;
  const auto expected = Session(recipe).to_end(folder.path());
  expect_same(Session(recipe).resume(folder.path()).to_end(folder.path()), expected);
}

TEST(Resume, AsAKilledProcessWould) {  // from a checkpoint in the middle of which nobody was told
  Recipe recipe = tiny_recipe();
  recipe.train.checkpoint_every = 4;
  recipe.train.keep = 10;
  const Folder folder;
  const auto expected = Session(recipe).to_end(folder.path());
  for (const auto& file : list_checkpoints(folder.path())) {
    const Folder other;
    expect_same(Session(recipe).resume(file).to_end(other.path()), expected);
  }
}

TEST(Resume, FromAnOlderCheckpointLeavesTheOtherWay) {
  Recipe recipe = tiny_recipe();
  recipe.train.checkpoint_every = 2;
  recipe.train.keep = 10;
  const Folder folder;
  Session(recipe).to_end(folder.path());
  const auto file = [&](std::int64_t step) { return checkpoint_file(folder / "checkpoints", step); };
  recipe.optim.rate = 0.01;  // another way from there on
  recipe.train.keep = 1;
  const Folder other;
  std::filesystem::create_directories(other / "checkpoints");
  std::filesystem::copy_file(file(4), checkpoint_file(other / "checkpoints", 4));
  const auto expected = Session(recipe).resume(file(4)).to_end(other.path());

  testing::internal::CaptureStderr();
  Session(recipe).resume(file(4)).stop_after(7).to_end(folder.path());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::AllOf(testing::HasSubstr("step 4"), testing::HasSubstr("aside-1")));
  EXPECT_THAT(list_checkpoints(folder.path()), testing::ElementsAre(file(7)));
  EXPECT_EQ(list_checkpoints(folder / "checkpoints" / "aside-1").size(), 7u) << "6, 8 … 18: nothing is lost";
  expect_same(Session(recipe).resume(folder.path()).to_end(folder.path()), expected);
}

TEST(Resume, BatchNormStatisticsGoOnWhereTheyStood) {
  Recipe recipe = tiny_recipe();
  recipe.model.network = "mobilenet_v1";
  recipe.data.shape = {1, 16, 16};
  recipe.data.batch = 8;
  recipe.data.train_samples = 24;
  recipe.data.test_samples = 8;
  recipe.train.epochs = 1;
  const auto expected = train(recipe);
  const Folder folder;
  Session(recipe).stop_after(2).to_end(folder.path());
  expect_same(Session(recipe).resume(folder.path()).to_end(folder.path()), expected);
}

TEST(Resume, TellsWhereItStarted) {
  const Recipe recipe = tiny_recipe();
  const Folder folder;
  Session(recipe).stop_after(5).to_end(folder.path());
  Session again(recipe);
  std::int64_t first_step = -1, first_done = -1;
  again.bus.add(std::make_unique<On<observe::RunStarted>>([&](const observe::RunStarted& e) { first_step = e.first_step; }));
  again.bus.add(
      std::make_unique<On<observe::StepDone>>([&](const observe::StepDone& e) { first_done = first_done < 0 ? e.step : first_done; }));
  again.resume(folder.path()).to_end(folder.path());
  EXPECT_EQ(first_step, 5);
  EXPECT_EQ(first_done, 6);
}

}  // namespace
}  // namespace paceline::train
