// A user's module with every strategy, rule, compressor and optimizer, in one process and among processes; equal to one worker where nobody
// is ahead of another.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "paceline/ps/rule.h"
#include "paceline/strategies/registry.h"
#include "tests/train/own_workload.h"
#include "tests/train/process_runs.h"

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

/// The same model, but for the order of additions.
void expect_same_weights(const std::filesystem::path& run, const std::filesystem::path& other) {
  const auto mine = newest_good_checkpoint(run).second, others = newest_good_checkpoint(other).second;
  for (const NamedTensor& item : others.tensors) {
    if (!item.name.starts_with("model.")) continue;
    EXPECT_TRUE(at::allclose(step::find_saved(mine.tensors, item.name), item.tensor, 1e-4, 1e-6)) << item.name;
  }
}

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
  expect_same_weights(folder.path(), alone.path());
}

INSTANTIATE_TEST_SUITE_P(, SynchronousStrategy, testing::ValuesIn(synchronous_strategies()),
                         [](const auto& row) { return row.param.strategy; });

Recipe recipe_among_processes(const std::string& strategy) {
  Recipe recipe = small_recipe();
  recipe.strategy.name = strategy;
  recipe.train.epochs = 4, recipe.train.threads = 1;
  recipe.optim.momentum = 0, recipe.optim.rate = 0.1;
  recipe.parallel.workers = kTogether;
  recipe.ps.executor = "processes", recipe.ps.transport = "mpi";
  recipe.ps.deadline_s = 60;  // longer than a loaded machine takes for anything
  return recipe;
}

/// Two servers, which divide the module's parameters, or one where that is refused, and two workers. They share nothing but messages.
observe::RunEnded train_among_processes(Recipe recipe, const std::filesystem::path& folder, const Workload& workload) {
  recipe.ps.servers = 2;
  try {
    validate(recipe);
  } catch (const ConfigError& refusal) {
    EXPECT_THAT(refusal.what(), testing::HasSubstr("ps.servers=1"));
    recipe.ps.servers = 1;
  }
  return train_among_ranks(recipe, {.servers = static_cast<int>(recipe.ps.servers), .workers = kTogether},
                           {.folder = folder, .workload = workload});
}

/// How they train: a strategy of the table, or "ps" with a rule.
struct Served {
  std::string strategy, rule;
};
std::vector<Served> served_strategies() {
  std::vector<Served> all;
  for (const auto& row : strategies::strategies())
    if (row.make.centralised()) all.push_back({std::string(row.key), row.make.rule.empty() ? "asgd" : std::string(row.make.rule)});
  for (const auto& row : ps::update_rules())
    if (std::ranges::find(all, row.key, &Served::rule) == all.end()) all.push_back({"ps", std::string(row.key)});
  return all;
}

TEST(WorkloadAmongProcesses, IsTrainedByEveryServerStrategyAndRule) {
  const Workload workload = regression();
  Recipe still = recipe_among_processes("asgd");
  still.optim.rate = 1e-12;
  const double untrained = train_among_processes(still, Folder().path(), workload).test_loss;
  const std::vector<Served> all = served_strategies();
  EXPECT_GE(all.size(), ps::update_rules().size());
  for (const Served& each : all) {
    SCOPED_TRACE(each.strategy + " " + each.rule);
    Recipe recipe = recipe_among_processes(each.strategy);
    if (each.strategy == "ps") recipe.ps.rule = each.rule;
    ps::PsConfig config = recipe.ps;
    config.rule = each.rule;
    if (!ps::make_rule({.config = config, .optim = recipe.optim, .workers = kTogether})->why_not_gradients().empty())
      recipe.ps.optimizer = "worker", recipe.ps.period = 2, recipe.optim.rate = 0.02;
    const observe::RunEnded ended = train_among_processes(recipe, Folder().path(), workload);
    EXPECT_EQ(ended.samples, recipe.train.epochs * 96);
    EXPECT_GT(ended.served->updates, 0);
    EXPECT_LT(ended.test_loss, untrained) << "it learns";
  }
}

TEST(WorkloadAmongProcesses, EqualsOneWorkerWhereNobodyIsAhead) {
  const Workload workload = regression(/*with_norm=*/false);
  const Folder alone;
  Recipe single = recipe_among_processes("asgd");
  single.strategy.name = "single", single.ps = {};
  const Trained one = train(single, workload, 1, alone.path());
  int tried = 0;
  for (const Synchronous& row : synchronous_strategies()) {
    if (!strategies::is_centralised(row.strategy)) continue;
    SCOPED_TRACE(row.strategy);
    Recipe recipe = recipe_among_processes(row.strategy);
    if (Config config = recipe.config(); !row.setting.empty()) config.set(row.setting);
    const Folder folder;
    const observe::RunEnded ended = train_among_processes(recipe, folder.path(), workload);
    EXPECT_NEAR(ended.test_loss, one.ended.test_loss, 1e-5 * one.ended.test_loss + 1e-7);
    expect_same_weights(folder.path(), alone.path());
    ++tried;
  }
  EXPECT_GE(tried, 4);
}

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
