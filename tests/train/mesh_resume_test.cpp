// Runs that are stopped under one mesh or stage of ZeRO's and go on under another: the state of a run that never stopped.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mesh_ways.h"
#include "runs.h"

namespace paceline::train {
namespace {

Recipe staged(std::int64_t workers, std::int64_t zero) {
  Recipe recipe = tiny_recipe();
  recipe.model.hidden = {16, 12};
  recipe.optim.name = "adam", recipe.optim.rate = 0.001;
  recipe.comm.algorithm = "direct";
  recipe.parallel.workers = workers, recipe.parallel.zero = zero;
  return recipe;
}

TEST(MeshResume, GoesOnUnderAnyStageOfZero) {
  const Folder whole;
  const std::string hash = run_in(whole.path(), staged(2, 0)).state_hash;
  for (const std::int64_t before : {0, 1, 2, 3}) {
    const Folder parts;
    run_in(parts.path(), staged(2, before), /*resume=*/false, /*stop_after=*/4);
    for (const std::int64_t after : {0, 2, 3}) {
      const Folder copy;
      std::filesystem::copy(parts.path(), copy.path(), std::filesystem::copy_options::recursive);
      EXPECT_EQ(run_in(copy.path(), staged(2, after), /*resume=*/true).state_hash, hash) << before << " to " << after;
      EXPECT_EQ(state_hash(newest_good_checkpoint(copy.path()).second.tensors), hash) << before << " to " << after;
    }
  }
}

TEST(MeshResume, GoesOnWithOtherWorkersFromZero3) {
  const Folder parts;
  run_in(parts.path(), staged(4, 3), /*resume=*/false, /*stop_after=*/4);
  const Folder whole;
  const double loss = run_in(whole.path(), staged(4, 0)).test_loss;
  for (const std::int64_t workers : {1, 2, 4}) {
    const Folder copy;
    std::filesystem::copy(parts.path(), copy.path(), std::filesystem::copy_options::recursive);
    EXPECT_NEAR(run_in(copy.path(), staged(workers, workers > 1 ? 3 : 0), /*resume=*/true).test_loss, loss, 1e-4) << workers;
  }
}

/// Every tensor of the newest checkpoint in which numbers are trained: of the model, and of the optimizer's state.
std::map<std::string, at::Tensor> state_in(const std::filesystem::path& run) {
  const Checkpoint checkpoint = newest_good_checkpoint(run).second;
  std::map<std::string, at::Tensor> state;
  for (const NamedTensor& item : checkpoint.tensors)
    if (item.name.starts_with("model.") || item.name.starts_with("optim."))
      state[item.name] = step::find_saved(checkpoint.tensors, item.name).to(at::kDouble);
  return state;
}

constexpr double kLeastNorm = 0.05;  // Adam makes steps of the gradients of keys' biases, which are nothing but rounding

// A tied gpt: slices on the tensor axis, layers on the pipeline axis, an embedding on two stages, and ranges of ZeRO's.
TEST(MeshResume, AGptGoesOnUnderAnyMeshAsIfNothingHadHappened) {
  const Folder texts, whole;
  const auto on = [&](const Way& way) {
    Recipe recipe = recipe_for(kSmall[2], texts.path());
    recipe.optim.name = "adamw", recipe.optim.rate = 1e-3;
    set_way(recipe, way);
    return recipe;
  };
  const Way one{.mesh = {1, 1, 1}}, eight{.mesh = {2, 2, 2}, .micro_batches = 2};
  const Way eight_sharded{.mesh = {2, 2, 2}, .zero = 3}, four_sharded{.mesh = {4, 1, 1}, .zero = 3};
  const observe::RunEnded undisturbed = run_in(whole.path(), on(one));
  const std::map<std::string, at::Tensor> expected = state_in(whole.path());
  ASSERT_TRUE(std::ranges::any_of(expected, [](const auto& item) { return item.first.starts_with("optim."); }));
  for (const auto& [before, after] :
       {std::pair{eight, one}, {one, eight}, {eight_sharded, one}, {one, eight_sharded}, {four_sharded, one}, {four_sharded, eight}}) {
    const std::string what = name_of(before) + " to " + name_of(after);
    const Folder folder;
    run_in(folder.path(), on(before), /*resume=*/false, /*stop_after=*/9);
    const observe::RunEnded ended = run_in(folder.path(), on(after), /*resume=*/true);
    EXPECT_EQ(ended.steps, undisturbed.steps) << what;
    EXPECT_NEAR(ended.train_loss, undisturbed.train_loss, 1e-5 * undisturbed.train_loss) << what;
    EXPECT_NEAR(ended.test_loss, undisturbed.test_loss, 1e-5 * undisturbed.test_loss) << what;
    const std::map<std::string, at::Tensor> found = state_in(folder.path());
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (const auto& [name, tensor] : expected) {
      ASSERT_TRUE(found.contains(name)) << name << ", " << what;
      const double difference = (found.at(name) - tensor).norm().item<double>(), norm = tensor.norm().item<double>();
      EXPECT_LE(difference, 1e-5 * (name.starts_with("model.") ? std::max(norm, kLeastNorm) : norm)) << name << ", " << what;
    }
  }
}

TEST(MeshResume, RecomputesUnderEveryStage) {
  Recipe recipe = staged(2, 0);
  recipe.model.dropout = 0.2, recipe.train.epochs = 1;
  const auto hash = [&](std::int64_t zero, const char* recompute) {
    const Folder folder;
    recipe.parallel.zero = zero, recipe.train.recompute = recompute;
    return run_in(folder.path(), recipe).state_hash;
  };
  const std::string plain = hash(0, "none");
  EXPECT_EQ(hash(1, "all"), plain);
  EXPECT_EQ(hash(2, "units"), plain);
  EXPECT_EQ(hash(3, "units"), plain);
  EXPECT_EQ(hash(3, "all"), plain);
}

/// Compressed along the data axis, with another mesh around it.
Recipe compressed(const std::string& compression, const comm::MeshSizes& mesh) {
  Recipe recipe = staged(0, 0);
  recipe.parallel.data = mesh.data, recipe.parallel.pipeline = mesh.pipeline, recipe.parallel.tensor = mesh.tensor;
  recipe.comm.compression = compression, recipe.compress.density = 0.1;
  recipe.optim.name = "sgd", recipe.optim.momentum = 0.5;
  return recipe;
}

class CompressedMesh : public testing::TestWithParam<std::string> {};

TEST_P(CompressedMesh, GoesOnWithTheSameBitsAndUnderAnyOther) {
  const Folder whole, parts;
  const Recipe recipe = compressed(GetParam(), {.data = 2, .pipeline = 2});
  const observe::RunEnded undisturbed = run_in(whole.path(), recipe);
  run_in(parts.path(), recipe, /*resume=*/false, /*stop_after=*/4);
  for (const comm::MeshSizes& mesh : {comm::MeshSizes{2, 2, 1}, {2, 1, 1}, {3, 2, 1}, {1, 2, 1}, {1, 1, 1}}) {
    const Folder copy;
    std::filesystem::copy(parts.path(), copy.path(), std::filesystem::copy_options::recursive);
    Recipe other = compressed(GetParam(), mesh);
    other.data.uneven = "weight";
    const observe::RunEnded ended = run_in(copy.path(), other, /*resume=*/true);
    const std::string name = fmt::format("data {} pipeline {}", mesh.data, mesh.pipeline);
    if (mesh.data == 2 && mesh.pipeline == 2) {
      EXPECT_EQ(ended.state_hash, undisturbed.state_hash) << name;
    } else {
      EXPECT_NEAR(ended.test_loss, undisturbed.test_loss, 0.3 * undisturbed.test_loss) << name;
    }
  }
}

// Ranks that share layers hold norms and biases alike; codes of whole buckets would drive them apart.
TEST_P(CompressedMesh, TensorsThatRanksHoldAlikeStayAlike) {
  const Recipe recipe = compressed(GetParam(), {.data = 2, .tensor = 2});
  const Folder folder;
  if (find(compress::compressors(), "compression", GetParam()).make.rounds_to) {
    EXPECT_NO_THROW(run_in(folder.path(), recipe));
  } else {
    EXPECT_THAT(message_of<ConfigError>([&] { run_in(folder.path(), recipe); }),
                testing::AllOf(testing::HasSubstr(GetParam()), testing::HasSubstr("parallel.tensor=1"), testing::HasSubstr("bf16")));
  }
}

std::vector<std::string> all_compressors() {
  std::vector<std::string> names;
  for (const auto& row : compress::compressors()) names.emplace_back(row.key);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Every, CompressedMesh, testing::ValuesIn(all_compressors()), [](const auto& each) { return each.param; });

}  // namespace
}  // namespace paceline::train
