// Whole runs of a gpt whose experts are spread over the workers: training, ragged batches, evaluation, checkpoints under another number of
// workers, refusals.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>

#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Recipe with_experts(const std::filesystem::path& folder, std::int64_t workers) {
  Recipe recipe = tiny_recipe();
  recipe.model = {.network = "gpt", .layers = 2, .width = 16, .heads = 2, .experts = 4, .experts_top = 2, .expert_capacity = 1};
  recipe.data.name = "text", recipe.data.root = (folder / "text.txt").string(), recipe.data.context = 8;
  std::ofstream text(recipe.data.root);
  for (int i = 0; i < 90; ++i) text << "the quick brown fox jumps over lazy dogs " << i % 7 << '\n';
  recipe.data.batch = 16, recipe.data.train_samples = 160, recipe.data.test_samples = 22;
  recipe.optim.rate = 0.05, recipe.optim.clip_norm = 1;
  recipe.parallel.workers = workers;
  recipe.train.epochs = 2, recipe.train.steps = 20, recipe.train.evaluate_every = 0;
  return recipe;
}

/// The model's tensors of the newest checkpoint, whole.
std::vector<NamedTensor> model_in(const std::filesystem::path& run) {
  const Checkpoint checkpoint = newest_good_checkpoint(run).second;
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& item : checkpoint.tensors)
    if (item.name.starts_with("model.") && !step::saved_shape(tensors, item.name))
      tensors.push_back({item.name, step::find_saved(checkpoint.tensors, item.name).clone()});
  return tensors;
}

void expect_same_model(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected, const std::string& what) {
  for (const NamedTensor& item : expected) {
    const at::Tensor here = step::saved_or_none(found, item.name);
    ASSERT_TRUE(here.defined() && here.sizes() == item.tensor.sizes()) << item.name << ", " << what;
    const double difference = (here - item.tensor).norm().item<double>();
    EXPECT_LE(difference, 1e-5 * std::max(item.tensor.norm().item<double>(), 0.01)) << item.name << ", " << what;
  }
}

TEST(Experts, EvaluateAndEndAsOneWorkerThatHoldsThemAll) {
  const Folder data, alone;
  const observe::RunEnded one = run_in(alone.path(), with_experts(data.path(), 1));
  const std::vector<NamedTensor> expected = model_in(alone.path());
  for (const std::int64_t workers : {2, 4}) {
    const Folder folder;
    const observe::RunEnded ended = run_in(folder.path(), with_experts(data.path(), workers));
    EXPECT_NEAR(ended.test_loss, one.test_loss, 1e-5) << "22 samples: some workers have none of the last batch";
    expect_same_model(model_in(folder.path()), expected, fmt::format("{} workers", workers));
  }
}

// The last batch has 2 samples for 4 workers.
TEST(Experts, WorkersWithoutSamplesComputeForTheOthers) {
  const Folder data, alone;
  Recipe recipe = with_experts(data.path(), 1);
  recipe.data.train_samples = 16 * 4 + 2, recipe.data.drop_last = false, recipe.data.uneven = "weight", recipe.train.epochs = 4;
  run_in(alone.path(), recipe);
  const std::vector<NamedTensor> expected = model_in(alone.path());
  recipe.parallel.workers = 4;
  for (const std::int64_t zero : {0, 3})
    for (const char* recompute : {"none", "all"}) {
      recipe.parallel.zero = zero, recipe.train.recompute = recompute;
      const Folder folder;
      run_in(folder.path(), recipe);
      expect_same_model(model_in(folder.path()), expected, fmt::format("zero {} recompute {}", zero, recompute));
    }
  recipe.parallel.workers = 0, recipe.parallel.data = 4, recipe.parallel.pipeline = 2, recipe.parallel.zero = 2;
  const Folder folder;
  run_in(folder.path(), recipe);
  expect_same_model(model_in(folder.path()), expected, "a pipeline");
  recipe.parallel.pipeline = 1, recipe.parallel.tensor = 2, recipe.parallel.sequence = true, recipe.parallel.zero = 0;
  const Folder shared;
  run_in(shared.path(), recipe);
  expect_same_model(model_in(shared.path()), expected, "sequences by positions");
}

TEST(Experts, GoOnUnderAnotherNumberOfWorkers) {
  const Folder data, alone;
  run_in(alone.path(), with_experts(data.path(), 1));
  const std::vector<NamedTensor> expected = model_in(alone.path());
  for (const std::int64_t zero : {0, 3}) {
    const Folder folder;
    const auto go = [&](std::int64_t workers, bool resume, std::int64_t until) {
      Recipe recipe = with_experts(data.path(), workers);
      recipe.parallel.zero = workers > 1 ? zero : 0;
      return run_in(folder.path(), recipe, resume, until);
    };
    go(4, false, 7);
    const Checkpoint written = newest_good_checkpoint(folder.path()).second;
    EXPECT_EQ(step::saved_shape(written.tensors, "model.transformer.h.1.mlp.c_fc.weight"), (std::vector<std::int64_t>{4, 64, 16}));
    go(1, true, 13);
    const observe::RunEnded ended = go(2, true, 0);
    EXPECT_EQ(ended.steps, 20);
    EXPECT_EQ(state_hash(newest_good_checkpoint(folder.path()).second.tensors), ended.state_hash) << "of the whole model";
    expect_same_model(model_in(folder.path()), expected, fmt::format("4 to 1 to 2, zero {}", zero));
  }
}

TEST(Experts, TellWhereALossCeasedToBeANumber) {
  const Folder data, folder;
  Recipe recipe = with_experts(data.path(), 2);
  recipe.optim.rate = 1e30, recipe.optim.clip_norm = 0;
  EXPECT_THAT(message_of<Diverged>([&] { run_in(folder.path(), recipe); }), HasSubstr("not finite"));
}

TEST(Experts, AreRefusedWhereTheyCannotBe) {
  const Folder data;
  const auto refused = [&](const std::function<void(Recipe&)>& set) {
    Recipe recipe = with_experts(data.path(), 2);
    set(recipe);
    const Folder folder;
    return message_of<ConfigError>([&] { run_in(folder.path() / "run", recipe); });
  };
  EXPECT_THAT(refused([](Recipe& r) { r.parallel.workers = 3, r.data.batch = 15; }),
              AllOf(HasSubstr("model.experts=3"), HasSubstr("data=1,pipeline=3,tensor=1")));
  EXPECT_THAT(refused([](Recipe& r) { r.model.network = "mlp", r.parallel.workers = 3, r.data.batch = 15; }),
              AllOf(HasSubstr("mlp"), HasSubstr("leave model.experts out")))
      << "whatever the workers";
  EXPECT_THAT(refused([](Recipe& r) { r.strategy.name = "local_sgd"; }), AllOf(HasSubstr("local_sgd"), HasSubstr("allreduce")));
  EXPECT_THAT(refused([](Recipe& r) { r.comm.compression = "topk"; }), HasSubstr("comm.compression=none"));
}

}  // namespace
}  // namespace paceline::train
