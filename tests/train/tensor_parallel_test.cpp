// Runs whose workers share layers: the same curve as one worker's, whatever the mesh.
#include <torch/nn/modules/linear.h>

#include "paceline/train/workers.h"
#include "paceline/train/workload.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path short_text() {
  static const Folder folder;
  const auto file = folder / "text.txt";
  if (!std::filesystem::exists(file)) {
    std::string text;
    for (int i = 0; i < 80; ++i) text += "the quick brown fox no. " + std::to_string(i * 7919 % 1000) + "\n";
    put_bytes(file, text);
  }
  return file;
}

Recipe shared_recipe(const std::string& network) {
  Recipe recipe = tiny_recipe();
  recipe.model.network = network;
  recipe.model.hidden = {24, 16};
  recipe.train.epochs = 2;
  recipe.train.checkpoints = false;
  recipe.train.label_smoothing = 0.1;
  if (network == "mlp") recipe.model.dropout = 0.2;
  if (network == "resnet20") recipe.data.batch = 8, recipe.data.train_samples = 32, recipe.data.shape = {3, 8, 8};
  if (network == "vgg16") {
    recipe.data.batch = 8, recipe.data.train_samples = 16, recipe.data.shape = {3, 32, 32};
    recipe.model.multiplier = 0.125, recipe.optim.rate = 0.01, recipe.model.dropout = 0;
  }
  if (network == "gpt") {
    recipe.data.name = "text", recipe.data.root = short_text().string(), recipe.data.context = 16, recipe.data.test_samples = 8;
    recipe.model.layers = 2, recipe.model.width = 32, recipe.model.dropout = 0.1;
    recipe.optim.name = "adamw", recipe.optim.rate = 0.003;
  }
  return recipe;
}

observe::RunEnded end_of_shared(const Recipe& recipe) {
  const Folder folder;
  return run_in(folder.path(), recipe);
}

class TensorParallelMeshes : public testing::TestWithParam<std::string> {};

TEST_P(TensorParallelMeshes, HaveTheCurveOfOneWorker) {
  const bool transformer = GetParam() == "gpt";
  const observe::RunEnded alone = end_of_shared(shared_recipe(GetParam()));
  for (const auto& [data, tensor] : {std::pair{1, 2}, {2, 2}, {1, 4}}) {
    Recipe recipe = shared_recipe(GetParam());
    if (data > 1 && recipe.model.dropout > 0) continue;  // data-parallel workers draw masks of their own
    if (data > 1 && GetParam() == "resnet20") continue;  // and have batch norms of their own
    recipe.parallel.data = data, recipe.parallel.tensor = tensor;
    recipe.parallel.sequence = transformer && tensor == 4;
    const observe::RunEnded run = end_of_shared(recipe);
    EXPECT_EQ(run.steps, alone.steps);
    EXPECT_EQ(run.samples, alone.samples) << "each counts once";
    EXPECT_NEAR(run.train_loss, alone.train_loss, 1e-5 * alone.train_loss) << data << 'x' << tensor;
    EXPECT_NEAR(run.test_loss, alone.test_loss, 1e-5 * alone.test_loss) << data << 'x' << tensor;
    EXPECT_EQ(run.test_accuracy, alone.test_accuracy) << data << 'x' << tensor;
  }
}

TEST(TensorParallelRuns, NormsAreThoseOfWholeTensors) {
  for (const auto& [optimizer, clip] : {std::pair{"sgd", 0.2}, {"lars", 0.2}, {"lamb", 0.2}, {"lars", 0.0}, {"lamb", 0.0}}) {
    Recipe recipe = shared_recipe("cnn");
    recipe.optim.name = optimizer, recipe.optim.clip_norm = clip;
    const observe::RunEnded alone = end_of_shared(recipe);
    recipe.parallel.data = 2, recipe.parallel.tensor = 2;
    const observe::RunEnded shared = end_of_shared(recipe);
    EXPECT_NEAR(shared.train_loss, alone.train_loss, 1e-5 * alone.train_loss) << optimizer << ", clip " << clip;
    EXPECT_NEAR(shared.test_loss, alone.test_loss, 1e-5 * alone.test_loss) << optimizer << ", clip " << clip;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, TensorParallelMeshes, testing::Values("mlp", "cnn", "resnet20", "vgg16", "gpt"),
                         [](const testing::TestParamInfo<std::string>& network) { return network.param; });

TEST(TensorParallelRuns, RefuseWhatCannotBeShared) {
  Recipe recipe = shared_recipe("gpt");
  recipe.model.heads = 4;
  recipe.parallel.tensor = 3;
  EXPECT_THAT(message_of<ConfigError>([&] { end_of_shared(recipe); }),
              AllOf(HasSubstr("4 heads"), HasSubstr("--mesh data=1,pipeline=3,tensor=1")));
  recipe = shared_recipe("gpt");
  recipe.parallel.sequence = true;
  EXPECT_THAT(message_of<ConfigError>([&] { end_of_shared(recipe); }),
              AllOf(HasSubstr("parallel.sequence"), HasSubstr("2 ranks"), HasSubstr("data=1,pipeline=1,tensor=2")));
}

TEST(TensorParallelRuns, RefuseAModuleWithoutRules) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = 2, recipe.parallel.tensor = 2;
  Workload workload;
  workload.model = nn::models_of([] { return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 10)); });
  observe::Bus bus;
  const SteadyClock clock;
  std::atomic<bool> stop = false;
  const Folder folder;
  EXPECT_THAT(
      message_of<ConfigError>([&] {
        Workers workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop, .workload = workload});
        workers.run(folder.path());
      }),
      AllOf(HasSubstr("parallel.tensor=2"), HasSubstr("module"), HasSubstr("data=2,pipeline=1,tensor=1"), HasSubstr("strategy.name=auto")));
}

}  // namespace
}  // namespace paceline::train
