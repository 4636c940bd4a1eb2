// Whole runs under ZeRO's stages and in 16 bits: training, evaluation, checkpoints, and a diagnosis.
#include <fstream>

#include "runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

/// Two workers: the order of additions is that of plain data parallelism, whatever the buckets.
Recipe in_stage(int stage) {
  Recipe recipe = tiny_recipe();
  recipe.model.hidden = {24, 16, 12};
  recipe.parallel.workers = 2, recipe.parallel.zero = stage;
  recipe.optim.name = "adamw", recipe.optim.rate = 0.001;
  recipe.strategy.update = stage == 0 ? "whole" : "auto";
  return recipe;
}

observe::RunEnded run_once(const Recipe& recipe) {
  const Folder folder;
  return run_in(folder.path(), recipe);
}

TEST(Zero, EndsInTheStateOfPlainDataParallelism) {
  const observe::RunEnded plain = run_once(in_stage(0));
  for (const int stage : {1, 2, 3})
    for (const char* recompute : {"none", "units", "all"}) {
      Recipe recipe = in_stage(stage);
      recipe.train.recompute = recompute;
      const observe::RunEnded ended = run_once(recipe);
      EXPECT_EQ(ended.state_hash, plain.state_hash) << stage << ' ' << recompute;
      EXPECT_EQ(ended.parameters_hash, plain.parameters_hash) << stage << ' ' << recompute;
      EXPECT_EQ(ended.test_loss, plain.test_loss) << stage << ' ' << recompute;
    }
}

// Norms make their gradients in the backward pass of the inputs, those of the weights come later: neither may lose the other's. More than a
// page of each unit is released.
TEST(Zero, KeepsTheGradientsOfNormsWhereThoseOfWeightsComeLater) {
  const Folder folder;
  Recipe recipe = tiny_recipe();
  recipe.data.name = "text", recipe.data.root = (folder.path() / "text.txt").string(), recipe.data.context = 8;
  std::ofstream text(recipe.data.root);
  for (int i = 0; i < 90; ++i) text << "the quick brown fox jumps over lazy dogs " << i % 7 << '\n';
  text.close();
  recipe.model.network = "gpt", recipe.model.layers = 4, recipe.model.width = 32, recipe.model.heads = 4, recipe.optim.rate = 0.05;
  recipe.data.batch = 16, recipe.train.epochs = 1, recipe.train.steps = 6, recipe.train.micro_batches = 2;
  recipe.parallel.data = 2, recipe.parallel.pipeline = 2, recipe.parallel.schedule = "zero_bubble";
  const observe::RunEnded plain = run_once(recipe);
  for (const int stage : {2, 3}) {
    recipe.parallel.zero = stage;
    EXPECT_EQ(run_once(recipe).parameters_hash, plain.parameters_hash) << stage;
  }
}

TEST(Zero, GoesOnInAnyStageFromTheCheckpointOfAnother) {
  const observe::RunEnded through = run_once(in_stage(0));
  for (const auto& [before, after] : {std::pair{3, 0}, {0, 3}, {3, 2}, {1, 3}}) {
    const Folder folder;
    run_in(folder.path(), in_stage(before), /*resume=*/false, /*stop_after=*/4);
    const observe::RunEnded ended = run_in(folder.path(), in_stage(after), /*resume=*/true);
    EXPECT_EQ(ended.steps, through.steps);
    EXPECT_EQ(ended.state_hash, through.state_hash) << before << " then " << after;
  }
}

TEST(Zero, EvaluatesARaggedTestBatchThatDoesNotReachEverybody) {
  Recipe recipe = in_stage(3);
  recipe.parallel.workers = 3, recipe.data.batch = 15, recipe.data.test_samples = 16;
  const observe::RunEnded ended = run_once(recipe);
  recipe.parallel.zero = 0;
  EXPECT_NEAR(ended.test_loss, run_once(recipe).test_loss, 1e-4);
}

TEST(Zero, TellsWhereALossCeasedToBeANumber) {
  Recipe recipe = in_stage(3);
  recipe.optim.name = "sgd", recipe.optim.rate = 1e30;
  EXPECT_THAT(message_of<Diverged>([&] { run_once(recipe); }), HasSubstr("not finite"));
}

TEST(Storage, RunsIn16BitsAndGoesOnInAnother) {
  const double exact = run_once(in_stage(0)).test_loss;
  for (const char* storage : {"bf16", "fp16"})
    for (const int stage : {0, 3}) {
      Recipe recipe = in_stage(stage);
      recipe.train.storage = storage;
      const Folder folder, parts;
      const observe::RunEnded through = run_in(folder.path(), recipe);
      EXPECT_NEAR(through.test_loss, exact, 0.05 * exact) << storage;
      run_in(parts.path(), recipe, /*resume=*/false, /*stop_after=*/4);
      EXPECT_EQ(run_in(parts.path(), recipe, /*resume=*/true).state_hash, through.state_hash) << storage << ", stage " << stage;
      const Folder other;
      run_in(other.path(), recipe, /*resume=*/false, /*stop_after=*/4);
      recipe.train.storage = "fp32";
      EXPECT_NEAR(run_in(other.path(), recipe, /*resume=*/true).test_loss, exact, 0.05 * exact);
    }
}

// A run may go on with other gradients: they are in no checkpoint.
TEST(Storage, TakesGradientsInFp32) {
  const double exact = run_once(in_stage(0)).test_loss;
  for (const char* storage : {"bf16", "fp16"})
    for (const int stage : {0, 2}) {
      Recipe recipe = in_stage(stage);
      recipe.train.storage = storage, recipe.train.gradients = "fp32";
      const Folder folder, parts;
      const observe::RunEnded through = run_in(folder.path(), recipe);
      EXPECT_NEAR(through.test_loss, exact, 0.05 * exact) << storage;
      recipe.train.gradients = "storage";
      run_in(parts.path(), recipe, /*resume=*/false, /*stop_after=*/4);
      recipe.train.gradients = "fp32";
      EXPECT_NEAR(run_in(parts.path(), recipe, /*resume=*/true).test_loss, exact, 0.05 * exact) << storage << ", stage " << stage;
    }
}

TEST(Storage, LeavesCompressorsGradientsInFp32) {
  Recipe recipe = in_stage(0);
  recipe.comm.compression = "topk", recipe.compress.density = 0.2;
  const observe::RunEnded exact = run_once(recipe);
  recipe.train.storage = "bf16";
  EXPECT_THAT(message_of<ConfigError>([&] { validate(recipe); }), HasSubstr("train.gradients=fp32"));
  recipe.train.gradients = "fp32";
  const observe::RunEnded ended = run_once(recipe);
  EXPECT_NEAR(ended.test_loss, exact.test_loss, 0.05 * exact.test_loss);
  EXPECT_EQ(ended.communication->bytes_per_step, exact.communication->bytes_per_step) << "codes of fp32";
}

TEST(Storage, IsRefusedWhereNobodyHasMasters) {
  Recipe recipe = tiny_recipe();
  recipe.train.storage = "fp16", recipe.parallel.workers = 2, recipe.strategy.name = "local_sgd";
  EXPECT_THAT(message_of<ConfigError>([&] { validate(recipe); }), HasSubstr("train.storage=fp16"));
}

TEST(GradientDtype, HalvesWhatARunSends) {
  for (const int stage : {0, 2}) {
    Recipe recipe = in_stage(stage);
    const observe::RunEnded plain = run_once(recipe);
    recipe.comm.gradient_dtype = "bf16";
    const observe::RunEnded ended = run_once(recipe);
    ASSERT_TRUE(plain.communication && ended.communication);
    // Stage 2 hands parameters round in fp32: three quarters.
    EXPECT_NEAR(ended.communication->bytes_per_step / plain.communication->bytes_per_step, stage == 0 ? 0.5 : 0.75, 0.01);
    EXPECT_NEAR(ended.communication->ratio, stage == 0 ? 2 : 4.0 / 3, 0.02);
    EXPECT_NEAR(ended.test_loss, plain.test_loss, 0.02 * plain.test_loss);
  }
}

TEST(GradientDtype, IsRefusedWhereSomethingElseSaysHowGradientsTravel) {
  const auto refused = [](const std::function<void(Recipe&)>& change) {
    Recipe recipe = in_stage(0);
    recipe.comm.gradient_dtype = "bf16";
    change(recipe);
    return message_of<ConfigError>([&] { validate(recipe); });
  };
  EXPECT_THAT(refused([](Recipe& recipe) { recipe.comm.compression = "int8"; }), HasSubstr("comm.compression=int8"));
  EXPECT_THAT(refused([](Recipe& recipe) { recipe.train.storage = "fp16"; }), HasSubstr("train.storage=bf16"));
  EXPECT_THAT(refused([](Recipe& recipe) { recipe.strategy.name = "local_sgd"; }), HasSubstr("strategy.name=allreduce"));
  EXPECT_THAT(refused([](Recipe& recipe) { recipe.comm.gradient_dtype = "fp8"; }), HasSubstr("bf16"));
  Recipe recipe = in_stage(0);
  recipe.comm.gradient_dtype = "bf16", recipe.train.storage = "fp16", recipe.train.gradients = "fp32";
  EXPECT_NO_THROW(validate(recipe)) << "they are not cut from 11 bits";
}

TEST(Offload, IsRefusedOnTheCpuAndWhereWorkersUpdateApart) {
  Recipe recipe = in_stage(0);
  recipe.parallel.offload = true;
  EXPECT_THAT(message_of<ConfigError>([&] { run_once(recipe); }), HasSubstr("train.device=cpu"));
  recipe.strategy.name = "local_sgd";
  EXPECT_THAT(message_of<ConfigError>([&] { validate(recipe); }), HasSubstr("strategy.name=allreduce"));
}

}  // namespace
}  // namespace paceline::train
