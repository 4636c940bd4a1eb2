// Runs with activations that are computed again: the state of a run without.
#include "runs.h"

namespace paceline::train {
namespace {

/// Convolutions with batch norms, or a perceptron with dropout, in micro-batches.
Recipe recomputed(const std::string& network, const std::string& recompute, std::int64_t workers) {
  Recipe recipe = tiny_recipe();
  recipe.model.network = network, recipe.model.hidden = {16, 12, 8};
  if (network == "mlp") recipe.model.dropout = 0.2;
  else recipe.data.shape = {3, 16, 16};
  recipe.train.epochs = 1, recipe.train.micro_batches = 2, recipe.train.recompute = recompute;
  recipe.parallel.workers = workers;
  return recipe;
}

TEST(Recompute, EndsInTheStateOfARunWithout) {
  for (const char* network : {"resnet20", "mlp"})
    for (const std::int64_t workers : {1, 2}) {
      const auto hash = [&](const char* recompute) {
        const Folder folder;
        return run_in(folder.path(), recomputed(network, recompute, workers)).state_hash;
      };
      const std::string plain = hash("none");
      EXPECT_EQ(hash("units"), plain) << network << ' ' << workers;
      EXPECT_EQ(hash("all"), plain) << network << ' ' << workers;
    }
}

}  // namespace
}  // namespace paceline::train
