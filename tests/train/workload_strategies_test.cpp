// A user's module with every strategy, rule, compressor and optimizer; equal to one worker where nobody is ahead of another.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "paceline/ps/rule.h"
#include "paceline/strategies/registry.h"
#include "tests/train/own_workload.h"

namespace paceline::train {
namespace {

/// Of a third of the steps.
double mean_of_first(const std::vector<double>& losses) {
  const auto third = losses.size() / 3;
  return std::accumulate(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(third), 0.0) / static_cast<double>(third);
}
double mean_of_last(std::vector<double> losses) {
  std::ranges::reverse(losses);
  return mean_of_first(losses);
}

class EveryStrategy : public testing::TestWithParam<std::string> {};

TEST_P(EveryStrategy, TrainsAUsersModule) {
  for (const bool with_norm : {true, false}) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = GetParam(), recipe.strategy.period = 2;
    recipe.train.epochs = 12;
    recipe.optim.momentum = 0, recipe.optim.rate = GetParam() == "diloco" ? 0.02 : 0.1;  // whose outer step makes it seven times as much
    const Folder folder;
    const Trained run = train(recipe, regression(with_norm), GetParam() == "single" ? 1 : 2, folder.path());
    EXPECT_TRUE(std::isfinite(run.ended.test_loss));
    EXPECT_LT(mean_of_last(run.losses), 0.95 * mean_of_first(run.losses)) << "it learns";
  }
}

std::vector<std::string> names_of_strategies() {
  std::vector<std::string> names;
  for (const auto& entry : strategies::strategies()) names.emplace_back(entry.key);
  return names;
}
INSTANTIATE_TEST_SUITE_P(, EveryStrategy, testing::ValuesIn(names_of_strategies()), [](const auto& row) { return row.param; });

class EveryRule : public testing::TestWithParam<std::string> {};

TEST_P(EveryRule, TrainsAUsersModule) {
  for (const bool with_norm : {true, false}) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = "ps", recipe.ps.rule = GetParam(), recipe.ps.executor = "virtual";
    recipe.train.epochs = 12;
    recipe.optim.momentum = 0, recipe.optim.rate = 0.1;
    const ps::RuleSetup setup{.config = recipe.ps, .optim = recipe.optim, .workers = 2};
    if (!ps::make_rule(setup)->why_not_gradients().empty())  // outer steps, which make a rate up to ten times as much
      recipe.ps.optimizer = "worker", recipe.ps.period = 2, recipe.optim.rate = 0.02;
    const Folder folder;
    const Trained run = train(recipe, regression(with_norm), 2, folder.path());
    EXPECT_TRUE(std::isfinite(run.ended.test_loss));
    EXPECT_LT(mean_of_last(run.losses), 0.95 * mean_of_first(run.losses)) << "it learns";
  }
}

std::vector<std::string> names_of_rules() {
  std::vector<std::string> names;
  for (const auto& entry : ps::update_rules()) names.emplace_back(entry.key);
  return names;
}
INSTANTIATE_TEST_SUITE_P(, EveryRule, testing::ValuesIn(names_of_rules()), [](const auto& row) { return row.param; });

constexpr int kTogether = 2;
/// A strategy, with the setting under which nobody is ahead of another.
struct Synchronous {
  std::string strategy, setting;
};
std::vector<Synchronous> synchronous_strategies() {
  std::vector<Synchronous> rows;
  for (const auto& [key, help, kind] : strategies::strategies())
    if (kind.synchronous_with)
      rows.push_back({std::string(key), fmt::format(fmt::runtime(*kind.synchronous_with), fmt::arg("workers", kTogether))});
  return rows;
}
class SynchronousStrategy : public testing::TestWithParam<Synchronous> {};

TEST_P(SynchronousStrategy, TrainsAUsersModuleAsOneWorkerDoes) {
  Recipe recipe = small_recipe();
  recipe.optim.momentum = 0, recipe.optim.rate = 0.1, recipe.train.epochs = 6;
  const Folder folder, alone;
  const Workload workload = regression(/*with_norm=*/false);  // batches of norms are each worker's own
  const Trained one = train(recipe, workload, 1, alone.path());
  recipe.strategy.name = GetParam().strategy;
  if (Config config = recipe.config(); !GetParam().setting.empty()) config.set(GetParam().setting);
  const Trained run = train(recipe, workload, kTogether, folder.path());
  EXPECT_NEAR(run.ended.test_loss, one.ended.test_loss, 1e-5 * one.ended.test_loss + 1e-7);
  const auto mine = newest_good_checkpoint(folder.path()).second, others = newest_good_checkpoint(alone.path()).second;
  for (const NamedTensor& item : others.tensors) {
    if (!item.name.starts_with("model.")) continue;
    EXPECT_TRUE(at::allclose(step::find_saved(mine.tensors, item.name), item.tensor, 1e-4, 1e-6)) << item.name;
  }
}

INSTANTIATE_TEST_SUITE_P(, SynchronousStrategy, testing::ValuesIn(synchronous_strategies()),
                         [](const auto& row) { return row.param.strategy; });

TEST(Workload, IsTrainedWithEveryCompressor) {
  for (const auto& compressor : compress::compressors()) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = "allreduce", recipe.comm.compression = compressor.key, recipe.train.epochs = 8, recipe.optim.rate = 0.01;
    const Folder folder;
    const Trained run = train(recipe, regression(), 2, folder.path());
    EXPECT_LT(mean_of_last(run.losses), mean_of_first(run.losses)) << compressor.key;
  }
}

TEST(Workload, IsTrainedWithEveryOptimizer) {
  for (const auto& optimizer : optim::optimizers()) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = "allreduce", recipe.optim.name = optimizer.key;
    recipe.optim.rate = optimizer.key == "rmsprop" ? 0.001 : 0.01;  // whose steps are as long as momentum makes them: ten rates
    const Folder folder;
    const Trained run = train(recipe, regression(), 2, folder.path());
    EXPECT_LT(mean_of_last(run.losses), mean_of_first(run.losses)) << optimizer.key;
  }
}

}  // namespace
}  // namespace paceline::train
