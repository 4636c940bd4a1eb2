// A run says before its first step how long one will take, from a cluster and, where there is one, a profile.
#include "paceline/train/predicted_time.h"

#include <cmath>

#include "paceline/graph/units.h"
#include "paceline/perf/cluster.h"
#include "paceline/perf/profile.h"
#include "paceline/train/planned.h"
#include "paceline/train/step_measure.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

Recipe predicted_recipe(int workers) {
  Recipe recipe = tiny_recipe();
  recipe.parallel.workers = workers;
  recipe.strategy.name = strategies::resolve("auto", workers);
  recipe.train.cluster = "two_cores";
  recipe.train.steps = 8;
  return recipe;
}

graph::Graph graph_of(const Recipe& recipe) { return graph_for(recipe.model, make_datasets(recipe).training->info()); }

TEST(Prediction, PartsAddUpToTheStep) {
  const Recipe recipe = predicted_recipe(2);
  const auto made = predict(recipe, graph_of(recipe), {.hosts = 1, .workers_per_host = 2});
  ASSERT_TRUE(made.has_value());
  EXPECT_GT(made->step_s, 0);
  EXPECT_LE(made->low_s, made->step_s);
  EXPECT_GE(made->high_s, made->step_s);
  EXPECT_NEAR(made->compute_s + made->optimizer_s + made->encoding_s + made->exposed_s + made->bubble_s + made->straggling_s, made->step_s,
              1e-9);
  EXPECT_GT(made->compute_s, 0);
  EXPECT_GT(made->bytes, 0);
  EXPECT_EQ(made->cluster, "two_cores");
}

/// Five seconds for a unit's passes of 16 samples, whatever it is.
perf::Profile profile_of(const graph::Graph& graph) {
  perf::Profile profile;
  profile.network = "mlp", profile.device = "cpu";
  perf::ProfileTable& table = profile.tables.emplace_back();
  const auto in_unit = [&](const graph::Unit& unit) {
    std::int64_t sum = 0;
    for (const graph::Parameter& parameter : graph.parameters())
      if (const auto layer = static_cast<std::size_t>(parameter.layer); unit.first <= layer && layer < unit.last)
        sum += graph::elements(parameter.shape);
    return sum;
  };
  for (const graph::Unit& unit : graph::units_of(graph))
    table.units.push_back({.name = unit.name,
                           .parameters = in_unit(unit),
                           .seconds = {{16, {.forward = 2, .backward = 3, .input_gradients = 1, .weight_gradients = 2, .evaluation = 2}}}});
  table.update_s["sgd"] = 0;
  return profile;
}

TEST(Prediction, TakesTheSecondsOfAProfile) {
  const Folder folder;
  const Recipe plain = predicted_recipe(1);
  const graph::Graph graph = graph_of(plain);
  perf::Profile profile = profile_of(graph);
  put_bytes(folder / "mlp.json", perf::to_json(profile));
  Recipe recipe = plain;
  recipe.train.profile = (folder / "mlp.json").string();
  const auto made = predict(recipe, graph, {});
  ASSERT_TRUE(made.has_value());
  EXPECT_NEAR(made->step_s, 5.0 * static_cast<double>(profile.tables[0].units.size()), 1e-6);
  EXPECT_EQ(made->profile, recipe.train.profile);
  profile.tables[0].units.back().parameters += 1;  // of other classes
  put_bytes(folder / "mlp.json", perf::to_json(profile));
  EXPECT_THAT(message_of<ConfigError>([&] { predict(recipe, graph, {}); }), HasSubstr("mlp.json"));
}

/// Workers that meet every eighth step send an eighth of what they would send otherwise, and so does the run.
TEST(Prediction, IsTheMeanOverAPeriod) {
  Recipe recipe = predicted_recipe(2);
  recipe.strategy.name = "local_sgd", recipe.train.steps = 0, recipe.train.epochs = 2;
  const auto of_period = [&](std::int64_t period) {
    recipe.strategy.period = period;
    return *predict(recipe, graph_of(recipe), {.hosts = 1, .workers_per_host = 2});
  };
  const observe::Prediction often = of_period(1), rarely = of_period(4);
  EXPECT_NEAR(rarely.bytes, often.bytes / 4, 1e-6 * often.bytes);
  EXPECT_NEAR(rarely.exposed_s, often.exposed_s / 4, 1e-6 * often.exposed_s);
  EXPECT_LT(rarely.step_s, often.step_s);
  const Folder folder;
  const observe::RunEnded ended = run_in(folder.path(), recipe);
  ASSERT_TRUE(ended.communication && ended.steps % 4 == 0);
  EXPECT_NEAR(ended.communication->bytes_per_step, rarely.bytes, 0.02 * rarely.bytes);
}

/// The period of a server's worker is its rule's.
TEST(Prediction, AServersWorkerVisitsItOncePerPeriod) {
  Recipe recipe = predicted_recipe(2);
  recipe.strategy.name = "downpour", recipe.ps.executor = "threads", recipe.optim.momentum = 0;
  const auto of_period = [&](const char* strategy, std::int64_t period) {
    recipe.strategy.name = strategy, recipe.ps.period = period;
    return *predict(recipe, graph_of(recipe), {.hosts = 1, .workers_per_host = 2});
  };
  const observe::Prediction often = of_period("downpour", 1), rarely = of_period("downpour", 4);
  EXPECT_NEAR(rarely.bytes, often.bytes / 4, 1e-6 * often.bytes);
  EXPECT_LT(rarely.exposed_s, often.exposed_s / 2);
  EXPECT_EQ(of_period("asgd", 4).bytes, often.bytes) << "its rule has no period";
}

TEST(Prediction, OnlyWorkersThatWaitForOneAnotherWaitForTheSlowest) {
  const Folder folder;
  Recipe recipe = predicted_recipe(2);
  const graph::Graph graph = graph_of(recipe);
  perf::Profile profile = profile_of(graph);
  profile.tables[0].jitter = 0.3;
  put_bytes(folder / "mlp.json", perf::to_json(profile));
  recipe.train.profile = (folder / "mlp.json").string();
  const auto straggling = [&](const char* strategy) {
    recipe.strategy.name = strategy;
    return predict(recipe, graph, {.hosts = 1, .workers_per_host = 2})->straggling_s;
  };
  EXPECT_GT(straggling("gossip"), 0);
  EXPECT_EQ(straggling("ad_psgd"), 0);
}

/// Stragglers included.
TEST(PlannedRun, IsPredictedAsItWasPlanned) {
  const Folder folder;
  Recipe recipe = predicted_recipe(2);
  recipe.strategy.name = "plan";
  const data::Info info = make_datasets(recipe).training->info();
  const graph::Graph graph = graph_for(recipe.model, info);
  perf::Profile profile = profile_of(graph);
  profile.tables[0].jitter = 0.3;
  put_bytes(folder / "mlp.json", perf::to_json(profile));
  recipe.train.profile = (folder / "mlp.json").string();
  const RunHosts hosts{.hosts = 1, .workers_per_host = 2};
  const perf::Plan plan = plan_for(recipe, info, hosts);
  EXPECT_GT(plan.cost.split.straggling, 0);
  Recipe chosen = with_choice(recipe, plan.choice);
  chosen.strategy.name = strategies::resolve(chosen.strategy.name, plan.choice.program.data);
  const auto predicted = predict(chosen, graph, hosts);
  ASSERT_TRUE(predicted.has_value());
  EXPECT_NEAR(predicted->step_s, plan.cost.seconds, 1e-6 * plan.cost.seconds);
  EXPECT_NEAR(predicted->straggling_s, plan.cost.split.straggling, 1e-6 * plan.cost.seconds);
}

TEST(PlannedRun, IsRefusedForAModuleOfTheUsersOwn) {
  observe::Bus bus;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  Recipe recipe = predicted_recipe(2);
  recipe.strategy.name = "plan";
  Workload workload;
  workload.model = [](const auto&) { return std::shared_ptr<nn::Model>(); };
  const auto start = [&] { Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop, .workload = workload}); };
  EXPECT_THAT(message_of<ConfigError>(start), HasSubstr("strategy.name=plan"));
  workload.model = nullptr;
  start();
}

TEST(Prediction, RanksBeyondTheDevicesTakeTurns) {
  const Folder folder;
  Recipe recipe = predicted_recipe(4);  // on two cores
  const graph::Graph graph = graph_of(recipe);
  const perf::Profile profile = profile_of(graph);
  put_bytes(folder / "mlp.json", perf::to_json(profile));
  recipe.train.profile = (folder / "mlp.json").string();
  const auto made = predict(recipe, graph, {.hosts = 1, .workers_per_host = 4});
  ASSERT_TRUE(made.has_value());
  const double share = static_cast<double>(recipe.data.batch) / 4 / 16;
  EXPECT_NEAR(made->compute_s, 2 * share * 5.0 * static_cast<double>(profile.tables[0].units.size()), 1e-6);
}

TEST(Prediction, AWholeStepIsMeasuredAndLeavesNothing) {
  const Folder folder;
  Recipe recipe = predicted_recipe(1);
  recipe.train.runs = folder.path().string();
  EXPECT_GT(measure_step(recipe, 1, 4), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Prediction, StandsInARunBesideWhatWasMeasured) {
  const Folder folder;
  observe::Bus bus;
  std::optional<observe::RunStarted> started;
  bus.add(std::make_unique<On<observe::RunStarted>>([&](const observe::RunStarted& event) { started = event; }));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  Recipe recipe = predicted_recipe(2);
  recipe.train.cluster = "two_cores", recipe.model.hidden = {256, 256};  // beside which the rest of a page does not count
  Workers workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop});
  const observe::RunEnded ended = workers.run(folder.path());
  ASSERT_TRUE(started && started->prediction);
  EXPECT_GT(started->prediction->step_s, 0);
  EXPECT_TRUE(std::isfinite(ended.step_s));
  EXPECT_GT(ended.step_s, 0);
  EXPECT_NEAR(ended.memory_bytes / started->prediction->memory_bytes, 1, 0.05);
}

TEST(Prediction, RefusesAClusterThatIsNone) {
  Recipe recipe = predicted_recipe(1);
  recipe.train.cluster = "two_corse";
  const Folder folder;
  EXPECT_THAT(message_of<ConfigError>([&] { run_in(folder.path(), recipe); }), HasSubstr("two_corse"));
}

TEST(Prediction, AVirtualClockHasNone) {
  Recipe recipe = predicted_recipe(2);
  recipe.strategy.name = "asgd", recipe.ps.executor = "virtual";
  EXPECT_FALSE(predict(recipe, graph_of(recipe), {.hosts = 1, .workers_per_host = 2}).has_value());
  recipe.ps.executor = "threads";
  const auto made = predict(recipe, graph_of(recipe), {.hosts = 1, .workers_per_host = 2});
  ASSERT_TRUE(made.has_value());
  EXPECT_GT(made->step_s, 0);
}

/// A worker of a parameter server pulls once and pushes once in a step.
TEST(ServedProgram, PushesAsOftenAsTheServerHears) {
  Recipe recipe = predicted_recipe(2);
  recipe.strategy.name = "asgd", recipe.ps.executor = "threads", recipe.train.steps = 0, recipe.train.epochs = 1;
  const RecipeStep step = step_of(recipe, graph_of(recipe));
  const std::vector<schedule::Program> programs = step.programs(step.settings.at(0));
  ASSERT_EQ(programs.size(), 1U);
  using Exchange = schedule::Action::Exchange;
  const auto count = [&](Exchange exchange) { return std::ranges::count(programs[0], exchange, &schedule::Action::exchange); };
  EXPECT_EQ(programs[0].front().exchange, Exchange::pull);
  EXPECT_EQ(programs[0].back().exchange, Exchange::push);
  EXPECT_EQ(programs[0].back().elements, step.model.parameters());
  const Folder folder;
  const observe::RunEnded ended = run_in(folder.path(), recipe);
  ASSERT_TRUE(ended.served.has_value());
  EXPECT_EQ(ended.served->gradients, ended.steps * count(Exchange::push));
}

}  // namespace
}  // namespace paceline::train
