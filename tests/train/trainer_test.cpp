// What a run does and tells: steps, batches, micro-batches, smoothing, events, and how it ends when something goes wrong.
#include <ATen/ATen.h>

#include <cmath>

#include <fmt/format.h>

#include "paceline/nn/graph_module.h"
#include "paceline/tensor/device.h"
#include "paceline/train/diagnose.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

/// Largest difference between the parameters of two recipes after training.
double distance(const Recipe& a, const Recipe& b) {
  const Folder folder;
  Session first(a), second(b);
  first.to_end(folder / "a");
  second.to_end(folder / "b");
  return (first.parameters() - second.parameters()).abs().max().item<double>();
}

TEST(MicroBatches, AddUpToTheWholeBatch) {
  for (const char* network : {"mlp", "lenet5"}) {
    Recipe whole = tiny_recipe();
    whole.model.network = network;
    if (whole.model.network == "lenet5") whole.data.shape = {1, 28, 28};
    Recipe parts = whole;
    parts.train.micro_batches = 4;
    EXPECT_LT(distance(whole, parts), 1e-5) << network;
    parts.train.micro_batches = 5;  // does not divide 16: every sample still has the same weight
    EXPECT_LT(distance(whole, parts), 1e-5) << network;
  }
}

TEST(Trainer, RefusesToPlayManyWorkersAsOne) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = 2;
  EXPECT_THAT(message_of<ConfigError>([&] { const Session run(recipe); }), HasSubstr("parallel.workers=2"));
}

TEST(Trainer, LearnsTheShapes) {
  Recipe recipe = tiny_recipe();
  recipe.data.train_samples = 640;
  recipe.data.test_samples = 200;
  recipe.data.classes = 3;
  recipe.data.shape = {1, 12, 12};
  recipe.train.epochs = 6;
  const Folder folder;
  Session run(recipe);
  std::vector<double> losses;
  run.bus.add(std::make_unique<On<observe::EpochDone>>([&](const observe::EpochDone& e) { losses.push_back(e.train_loss); }));
  const auto ended = run.to_end(folder.path());
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  EXPECT_EQ(ended.train_loss, losses.back());
  EXPECT_GT(ended.test_accuracy, 0.5);
  EXPECT_EQ(ended.samples, 6 * 640);
}

TEST(Trainer, LabelSmoothingMixesTheTargetWithAllClasses) {
  // The loss is linear in the share that is spread, so three shares at the same weights tell.
  const auto loss_at = [](double share) {
    Recipe recipe = tiny_recipe();
    recipe.optim.rate = 0;
    recipe.train.label_smoothing = share;
    recipe.train.epochs = 1;
    return train(recipe).train_loss;
  };
  const double none = loss_at(0), all = loss_at(1);
  EXPECT_NE(none, all);
  EXPECT_NEAR(loss_at(0.3), 0.7 * none + 0.3 * all, 1e-6);
}

TEST(Trainer, TheBatchGrowsAtItsMilestones) {
  Recipe recipe = tiny_recipe();
  recipe.schedule.batch_milestones = {1, 2};
  recipe.schedule.largest_batch = 48;
  const Folder folder;
  Session run(recipe);
  std::vector<std::int64_t> samples, epochs;
  run.bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone& e) {
    samples.push_back(e.samples), epochs.push_back(e.epoch);
    EXPECT_EQ(e.steps, 11);
  }));
  EXPECT_EQ(run.to_end(folder.path()).steps, 11);
  EXPECT_THAT(samples, testing::ElementsAre(16, 16, 16, 16, 16, 16, 32, 32, 32, 48, 48));
  EXPECT_THAT(epochs, testing::ElementsAre(1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3));
}

TEST(Trainer, EverySampleOfARaggedEpochIsSeen) {
  Recipe recipe = tiny_recipe();
  recipe.data.batch = 36;
  recipe.data.drop_last = false;
  recipe.train.epochs = 2;
  const auto ended = train(recipe);
  EXPECT_EQ(ended.samples, 2 * recipe.data.train_samples);
  EXPECT_EQ(ended.steps, 2 * 3);
}

TEST(Trainer, AVeryLongRunThatIsLimitedBySteps) {
  Recipe recipe = tiny_recipe();
  recipe.train.epochs = 1'000'000'000;
  recipe.train.steps = 3;
  EXPECT_EQ(train(recipe).steps, 3);
}

TEST(Trainer, EvaluatesWhenTheRecipeSays) {
  const auto evaluated_epochs = [](double every) {
    Recipe recipe = tiny_recipe();
    recipe.train.epochs = 4;
    recipe.train.evaluate_every = every;
    const Folder folder;
    Session run(recipe);
    std::vector<std::int64_t> epochs;
    run.bus.add(std::make_unique<On<observe::Evaluated>>([&](const observe::Evaluated& e) { epochs.push_back(e.epoch); }));
    run.to_end(folder.path());
    return epochs;
  };
  EXPECT_THAT(evaluated_epochs(1), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(evaluated_epochs(3), testing::ElementsAre(3, 4));
  EXPECT_THAT(evaluated_epochs(0), testing::ElementsAre(4));
  EXPECT_THROW(evaluated_epochs(0.5), ConfigError) << "more often than it can";
}

TEST(Trainer, ANumberThatWasNotMeasuredIsNotGiven) {
  const Folder folder;
  const auto ended = Session(tiny_recipe()).stop_after(2).to_end(folder.path());
  EXPECT_TRUE(std::isnan(ended.test_loss));
  EXPECT_TRUE(std::isnan(ended.test_accuracy));
  EXPECT_TRUE(std::isfinite(ended.train_loss));
}

TEST(Trainer, CheckpointsAsOftenAsTheRecipeSaysAndKeepsTheNewest) {
  Recipe recipe = tiny_recipe();
  recipe.train.checkpoint_every = 4;
  recipe.train.steps = 16;
  recipe.train.keep = 3;
  const Folder folder;
  Session run(recipe);
  std::vector<std::int64_t> steps;
  run.bus.add(std::make_unique<On<observe::CheckpointWritten>>([&](const observe::CheckpointWritten& e) {
    steps.push_back(e.step);
    EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(e.file)), e.bytes);
  }));
  run.to_end(folder.path());
  EXPECT_THAT(steps, testing::ElementsAre(4, 6, 8, 12, 16)) << "every fourth step and every end of an epoch, each once";
  const auto folder_of = folder / "checkpoints";
  EXPECT_THAT(list_checkpoints(folder.path()),
              testing::ElementsAre(checkpoint_file(folder_of, 16), checkpoint_file(folder_of, 12), checkpoint_file(folder_of, 8)));
}

TEST(Trainer, TheWaitAtTheEndIsCountedByItself) {
  struct Ticking final : Clock {
    Nanoseconds now() const override { return std::chrono::milliseconds(++ticks); }
    mutable std::atomic<int> ticks{0};
  };
  const Folder folder;
  observe::Bus bus;
  const Ticking clock;
  const std::atomic<bool> stop = false;
  const observe::RunEnded ended = Trainer(tiny_recipe(), {.bus = bus, .clock = clock, .stop = stop}).run(folder.path());
  ASSERT_TRUE(ended.checkpoints.has_value());
  EXPECT_GT(ended.checkpoints->paused_s, 0);
  EXPECT_GT(ended.checkpoints->final_wait_s, 0);
  EXPECT_GE(ended.wall.final_wait, ended.checkpoints->final_wait_s);
  EXPECT_LT(ended.wall.final_wait + ended.wall.checkpoints, ended.wall.total());
}

TEST(Trainer, StepsAreNotBrokenOffForCheckpointsThatAreLeftOut) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = 2, recipe.strategy.name = "ad_psgd";  // whose steps are told of together, with one duration
  recipe.train.epochs = 1, recipe.train.checkpoints = false, recipe.train.checkpoint_every = 1;
  observe::Bus bus;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  std::vector<Nanoseconds> durations;
  bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone& e) { durations.push_back(e.duration); }));
  const Folder folder;
  Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop}).run(folder.path());
  ASSERT_EQ(std::ssize(durations), kStepsPerEpoch);
  EXPECT_THAT(durations, testing::Each(durations.front()));
}

TEST(Divergence, StopsAtTheStepAndNamesTheLayer) {
  Recipe recipe = tiny_recipe();
  const Folder folder;
  Session(recipe).stop_after(kStepsPerEpoch).to_end(folder.path());  // one good epoch and its checkpoint
  const std::string good = bytes_in(checkpoint_file(folder / "checkpoints", kStepsPerEpoch));

  recipe.optim.rate = 1e30;
  Session run(recipe);
  run.resume(folder.path());
  const std::string message = message_of<Error>([&] { run.to_end(folder.path()); });
  EXPECT_THAT(message, testing::MatchesRegex("the loss is .*(nan|inf) at step [0-9]+: .*layer 'fc[12]'.*"));
  EXPECT_THAT(message, HasSubstr("optim.rate"));
  EXPECT_THAT(message, HasSubstr(checkpoint_file(folder / "checkpoints", kStepsPerEpoch).string()));

  const auto [file, kept] = newest_good_checkpoint(folder.path());
  EXPECT_EQ(kept.position.step, kStepsPerEpoch);
  EXPECT_EQ(bytes_in(file), good);
}

TEST(Divergence, TheLayerIsTheOneWhereItBegan) {
  Recipe recipe = tiny_recipe();
  recipe.model.hidden = {16, 16, 16};
  for (const char* name : {"fc1", "fc2", "fc3", "fc4"}) {
    const Folder folder;
    Session run(recipe);
    const tensor::Arena& arena = run.trainer->module().arena();
    for (std::size_t i = 0; i < arena.entries().size(); ++i)
      if (arena.entries()[i].name == std::string(name) + ".weight") arena.parameter(i).fill_(3e38);  // finite; its products are not
    const std::string message = message_of<Diverged>([&] { run.to_end(folder.path()); });
    EXPECT_THAT(message, testing::MatchesRegex(".*at step 1: .*")) << name;
    EXPECT_THAT(message, HasSubstr("the output of layer '" + std::string(name) + "' is not finite"));
  }
}

TEST(Divergence, AParameterIsFoundByItsLayer) {  // whose name may not be the beginning of the parameter's
  graph::ModelConfig config;
  config.network = "gpt";
  config.input = {8}, config.classes = 16;
  const graph::Graph graph = graph::make_graph(config);
  nn::GraphModule module(graph, {});
  const at::Tensor tokens = at::zeros({2, 8}, at::kLong);
  for (const graph::Parameter& parameter : graph.parameters()) {
    at::Tensor values = module.named_parameters()[parameter.name].detach();
    const at::Tensor before = values.clone();
    values.fill_(NAN);
    const std::string& layer = graph.layers()[static_cast<std::size_t>(parameter.layer)].name;
    const std::string expected = fmt::format("'{}' of layer '{}' is not finite", parameter.name, layer);
    EXPECT_EQ(describe(module, first_fault(module, tokens, 1, true)), expected);
    EXPECT_EQ(describe(module, bad_parameter(module, 1).value()), expected);
    values.copy_(before);
  }
  EXPECT_FALSE(bad_parameter(module, 1).has_value());
}

TEST(Divergence, ATestLossThatIsNoNumberEndsTheRun) {
  Recipe recipe = tiny_recipe();
  recipe.schedule.name = "constant", recipe.schedule.warmup_epochs = 0;
  recipe.train.steps = 1;
  recipe.optim.rate = 3e38;  // the first loss is a number, and so may be the parameters after it
  for (const bool checkpoints : {true, false}) {
    recipe.train.checkpoints = checkpoints;
    const Folder folder;
    Session run(recipe);
    const std::string message = message_of<Diverged>([&] { run.to_end(folder.path()); });
    EXPECT_THAT(message, testing::AllOf(HasSubstr("the test loss is"), HasSubstr("after step 1: "), HasSubstr("of layer 'fc")));
    EXPECT_TRUE(list_checkpoints(folder.path()).empty());
  }
}

TEST(Divergence, AnUpdateThatOverflowedIsNeverACheckpoint) {
  Recipe recipe = tiny_recipe();
  recipe.schedule.warmup_epochs = 0;
  recipe.optim.rate = 1e39;  // infinite in single precision; the first loss is still a number
  recipe.train.checkpoint_every = 1;
  const Folder folder;
  Session run(recipe);
  const std::string message = message_of<Error>([&] { run.to_end(folder.path()); });
  EXPECT_THAT(message, HasSubstr("step 1 "));
  EXPECT_THAT(message, HasSubstr("layer 'fc1'"));
  EXPECT_THAT(message, HasSubstr("no checkpoint yet"));
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
}

TEST(FullDisk, TrainingGoesOnAndTheNextCheckpointIsTriedAgain) {
  const Recipe recipe = tiny_recipe();
  const auto expected = train(recipe);
  const Folder folder;
  const auto obstacle = folder / "checkpoints";  // a file where the folder should be
  put_bytes(obstacle, "in the way");
  Session run(recipe);
  run.bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone& e) {
    if (e.step == 2 * kStepsPerEpoch + 1) std::filesystem::remove(obstacle);  // the second one waited for the first
  }));
  testing::internal::CaptureStderr();
  const auto ended = run.to_end(folder.path());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("no checkpoint at step 6"));
  EXPECT_THAT(log, HasSubstr("training continues"));
  EXPECT_EQ(ended.state_hash, expected.state_hash);
  EXPECT_EQ(newest_good_checkpoint(folder.path()).second.position.step, expected.steps);
}

TEST(FullDisk, TheAlarmComesOnceAStep) {
  Recipe recipe = tiny_recipe();
  recipe.train.epochs = 1;
  const Folder folder;
  put_bytes(folder / "checkpoints", "in the way");
  Session run(recipe);
  testing::internal::CaptureStderr();
  run.to_end(folder.path());
  const std::string log = testing::internal::GetCapturedStderr(), alarm = "no checkpoint at step 6";
  EXPECT_NE(log.find(alarm), std::string::npos);
  EXPECT_EQ(log.find(alarm), log.rfind(alarm)) << log;
}

TEST(FullDisk, AStopWithoutACheckpointIsAFailure) {
  const Folder folder;
  put_bytes(folder / "checkpoints", "in the way");
  Session run(tiny_recipe());
  run.stop_after(2);
  testing::internal::CaptureStderr();
  const std::string message = message_of<Error>([&] { run.to_end(folder.path()); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(message, HasSubstr("no checkpoint could be written"));
}

TEST(Residency, AutoLeavesASetOfManyChannelsOnTheHost) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  Recipe recipe = tiny_recipe();
  recipe.train.device = "cuda";
  recipe.data.shape = {17, 8, 8};
  EXPECT_EQ(train(recipe).epochs, kEpochs);
}

TEST(Refusal, BeforeAnythingIsWritten) {
  const auto refused = [](const std::function<void(Recipe&)>& change) {
    Recipe recipe = tiny_recipe();
    change(recipe);
    return message_of<ConfigError>([&] { Session run(recipe); });
  };
  EXPECT_THAT(refused([](Recipe& r) { r.data.batch = 1000; }), testing::AllOf(HasSubstr("data.batch=1000"), HasSubstr("96")));
  EXPECT_THAT(refused([](Recipe& r) { r.model.input = {1, 9, 9}; }), testing::AllOf(HasSubstr("1x9x9"), HasSubstr("1x8x8")));
  EXPECT_THAT(refused([](Recipe& r) { r.model.classes = 4; }), testing::AllOf(HasSubstr("4 classes"), HasSubstr("10")));
  EXPECT_THAT(refused([](Recipe& r) { r.train.threads = 100000; }), testing::AllOf(HasSubstr("train.threads=100000"), HasSubstr("cores")));
  EXPECT_THAT(refused([](Recipe& r) { r.data.augment = true, r.data.cutout = 9; }),
              testing::AllOf(HasSubstr("data.cutout=9"), HasSubstr("8x8")));
  EXPECT_THAT(refused([](Recipe& r) { r.train.device = "tpu"; }), HasSubstr("tpu"));
  EXPECT_THAT(refused([](Recipe& r) { r.data.residency = "device"; }), HasSubstr("data.residency"));
  EXPECT_THAT(refused([](Recipe& r) {
                r.data.residency = "device", r.data.shape = {17, 8, 8};
              }),
              testing::AllOf(HasSubstr("up to 16 channels"), HasSubstr("has 17")));
  EXPECT_THAT(refused([](Recipe& r) { r.schedule.name = "piecewise"; }), HasSubstr("points"));
  EXPECT_THAT(refused([](Recipe& r) {
                r.schedule.batch_milestones = {1};
                r.schedule.batch_factor = 1e20;
              }),
              HasSubstr("largest_batch"));
}

}  // namespace
}  // namespace paceline::train
