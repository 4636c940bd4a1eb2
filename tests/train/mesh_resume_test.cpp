// Runs that are stopped under one stage of ZeRO's and go on under another: the state of a run that never stopped.
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

}  // namespace
}  // namespace paceline::train
