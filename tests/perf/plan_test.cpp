// The planner's search: what it must find, what it must refuse, and that its bound never hides a better plan.
#include "paceline/perf/plan.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/memory/fit.h"
#include "paceline/perf/period.h"
#include "paceline/perf/plan_costs.h"
#include "paceline/perf/plan_fit.h"
#include "paceline/perf/plan_space.h"
#include "paceline/perf/run_steps.h"
#include "plan_questions.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

using testing::HasSubstr;
using Steps = std::vector<schedule::Program>;

TEST(Plan, TheBoundIsBelowTheCost) {
  const graph::Graph graph = small_gpt();
  for (const char* cluster : {"h100", "two_cores"}) {
    PlanQuestion question = ask(graph, cluster, cluster == std::string("h100") ? 8 : 2, 32);
    const PlanCosts costs(question);
    int seen = 0;
    for (const Choice& mesh : meshes(question))
      for (const Choice& choice : choices_on(question, mesh)) {
        std::optional<Plan> plan = costs.fitted(choice);
        ASSERT_TRUE(plan);
        costs.add_cost(*plan);
        EXPECT_LE(costs.bound(choice), plan->cost.seconds * 1.0001) << title_of(choice);
        EXPECT_LE(costs.bound(*plan), plan->cost.seconds * 1.0001) << title_of(choice);
        EXPECT_EQ(costs.bound(*plan) > 0, choice.program.pipeline > 1) << title_of(choice);
        ++seen;
      }
    EXPECT_GT(seen, 10);
  }
}

TEST(Plan, FindsTheFastestOfAll) {
  const graph::Graph graph = small_gpt();
  const PlanQuestion question = ask(graph, "h100", 8, 32);
  const PlanCosts costs(question);
  double best = 1e9;
  for (const Choice& mesh : meshes(question))
    for (const Choice& choice : choices_on(question, mesh)) {
      std::optional<Plan> plan = costs.fitted(choice);
      costs.add_cost(*plan);
      best = std::min(best, plan->cost.seconds);
    }
  const Plans plans = make_plans(question);
  EXPECT_LE(plans.exact.front().cost.seconds, best * 1.0001);
  EXPECT_LT(plans.costed, plans.considered);
  EXPECT_TRUE(std::ranges::is_sorted(plans.exact, {}, [](const Plan& plan) { return plan.cost.seconds; }));
}

TEST(Plan, MemoryDecidesWhatIsTried) {
  const graph::Graph graph = small_gpt(8, 512);
  PlanQuestion question = ask(graph, "h100", 8, 64);
  const std::int64_t free = make_plans(question).exact.front().bytes.total();
  question.memory = free / 3;
  const Plans tight = make_plans(question);
  EXPECT_GT(tight.too_large, 0);
  for (const Plan& plan : tight.exact) EXPECT_LE(plan.bytes.total(), free / 3) << title_of(plan.choice);
}

TEST(Plan, GainsAndEfficiency) {
  const graph::Graph graph = network("alexnet");
  PlanQuestion question = ask(graph, "p100", 16, 64);
  question.price = 2;
  const Plan best = make_plans(question).exact.front();
  EXPECT_GT(best.efficiency, 0);
  EXPECT_LE(best.efficiency, 1.0001);
  PlanQuestion faster = question;
  faster.correction = [](const Choice&) { return 0.2; };  // by the clock, such runs take a fifth of what the model says
  EXPECT_LE(make_plans(faster).exact.front().efficiency, 1.0001);
  EXPECT_NEAR(best.device_hours, 16e6 / best.samples_per_s / 3600, 1e-9);
  EXPECT_NEAR(best.money, 2 * best.device_hours, 1e-9);
  ASSERT_EQ(best.gains.size(), 4u);  // processor, memory bandwidth, links inside and between hosts
  for (const Gain& gain : best.gains) EXPECT_LE(gain.seconds, best.cost.seconds * 1.0001) << gain.what;
  const auto between = std::ranges::find(best.gains, "links between hosts", &Gain::what);
  ASSERT_NE(between, best.gains.end());
  EXPECT_LT(between->seconds, best.cost.seconds) << "25 Gb/s for 61 M parameters";
}

TEST(Plan, AnIntervalDoesNotDependOnWhatElseWasTried) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "h100", 8, 256);
  question.cluster.device.products = {.points = {{1e6, 0.1}, {2e9, 0.5}}, .source = Source::measured};
  std::size_t doubtful = 0;
  const Plans plans = make_plans(question);
  for (const Plan& plan : plans.exact) {
    const StepCost alone = cost_choice(question, plan.choice).cost;
    EXPECT_DOUBLE_EQ(plan.cost.low, alone.low) << title_of(plan.choice);
    EXPECT_EQ(plan.cost.notes, alone.notes) << title_of(plan.choice);
    doubtful += plan.cost.notes.empty() ? 0 : 1;
  }
  EXPECT_GT(doubtful, 0U);
}

TEST(Plan, SharedLayersArePlannedWhereTheySendLess) {
  const graph::Graph graph = network("alexnet");
  const PlanQuestion question = ask(graph, "p100", 8, 64);
  const std::vector<Choice> found = meshes(question);
  const auto data_alone = std::ranges::find_if(found, [](const Choice& mesh) { return mesh.program.data == 8; });
  ASSERT_NE(data_alone, found.end());
  const std::vector<Choice> choices = choices_on(question, *data_alone);
  std::set<std::pair<int, std::int64_t>> whole, shared;  // stage of ZeRO's and micro-batches
  for (const Choice& choice : choices)
    (choice.hybrid == "auto" ? shared : whole).emplace(choice.program.zero, choice.program.micro_batches);
  EXPECT_EQ(shared, whole);
  EXPECT_EQ(2 * shared.size(), choices.size());
  EXPECT_TRUE(shared.contains({3, 2}));
}

TEST(Plan, SharedLayersGoWithRecomputationAndZero) {
  const graph::Graph graph = network("alexnet");
  PlanQuestion question = ask(graph, "p100", 8, 2048);
  question.fixed = {{"data", 8}, {"zero", 1}};
  const auto shared = [&](const char* recompute) {
    for (Choice choice : choices_on(question, meshes(question).front()))
      if (choice.program.recompute = recompute; choice.hybrid == "auto" && choice.program.micro_batches == 2)
        return cost_choice(question, choice);
    throw InternalError("none");
  };
  const Plan plain = shared("none"), again = shared("all");
  EXPECT_LT(again.bytes.total(), plain.bytes.total());
  EXPECT_GT(again.cost.split.compute, plain.cost.split.compute);
  EXPECT_THAT(settings_of(plain.choice), testing::IsSupersetOf({"parallel.hybrid=\"auto\"", "parallel.zero=1", "train.micro_batches=2"}));
  question.memory = plain.bytes.total() / 2;
  question.fixed["tensor"] = question.fixed["pipeline"] = 1;
  const Plans tight = make_plans(question);
  EXPECT_TRUE(std::ranges::any_of(tight.exact, [](const Plan& plan) { return plan.choice.hybrid == "auto"; }));
}

TEST(Plan, TheBottleneckIsWhatWouldHelpMost) {
  Plan plan;
  plan.cost.seconds = 10, plan.cost.bottleneck = "compute";
  EXPECT_EQ(plan.bottleneck(), "compute");
  plan.gains = {{"processor", 9.8}, {"memory bandwidth", 6}, {"links", 10}};
  EXPECT_EQ(plan.bottleneck(), "memory bandwidth");
  plan.gains = {{"processor", 10}, {"links", 10}};
  EXPECT_EQ(plan.bottleneck(), "compute") << "nothing helps";
  plan.gains = {{"processor", 9}};
  plan.cost.bottleneck = "bubble";
  EXPECT_EQ(plan.bottleneck(), "bubble");
  const graph::Graph resnet = network("resnet50"), vgg = network("vgg16");
  EXPECT_EQ(make_plans(ask(resnet, "skylake", 1, 32)).exact.front().bottleneck(), "memory bandwidth");
  EXPECT_EQ(make_plans(ask(vgg, "p100", 1, 32)).exact.front().bottleneck(), "processor");
}

TEST(Plan, OthersStandApart) {
  const graph::Graph graph = network("alexnet");
  PlanQuestion question = ask(graph, "p100", 8, 64);
  question.strategies.others = {{.key = "rarely", .programs = plain_programs, .asynchronous = false, .period = 8, .remark = "drifts"}};
  question.strategies.wires = {{.compression = "bf16", .bytes = 2}};
  const Plans plans = make_plans(question);
  ASSERT_EQ(plans.others.size(), 2u);
  for (const Plan& plan : plans.exact) EXPECT_EQ(plan.choice.compression, "none");
  const auto rarely = std::ranges::find_if(plans.others, [](const Plan& plan) { return plan.choice.strategy == "rarely"; });
  ASSERT_NE(rarely, plans.others.end());
  PlanQuestion always = question;
  always.strategies.others[0].period = 1;
  const Plans met = make_plans(always);
  const auto often = std::ranges::find_if(met.others, [](const Plan& plan) { return plan.choice.strategy == "rarely"; });
  EXPECT_GT(rarely->samples_per_s, often->samples_per_s);
}

/// Nobody's gradient is late where workers meet each other and no server.
TEST(Plan, StalenessIsAServers) {
  const graph::Graph graph = network("alexnet");
  PlanQuestion question = ask(graph, "p100", 8, 64);
  const Programs served = [](const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
    using schedule::Action;
    schedule::ProgramWriter writer(model, settings, 0);
    writer.communicate(Action::Lane::compute, Action::Exchange::pull, Action::Axis::server, writer.elements(), 4);
    writer.passes();
    writer.communicate(Action::Lane::compute, Action::Exchange::push, Action::Axis::server, writer.elements(), 4);
    return std::vector<schedule::Program>{writer.take()};
  };
  question.strategies.others = {{.key = "neighbours", .programs = plain_programs, .asynchronous = true},
                                {.key = "served", .programs = served, .asynchronous = true}};
  const Plans plans = make_plans(question);
  ASSERT_EQ(plans.others.size(), 2u);
  for (const Plan& plan : plans.others) EXPECT_EQ(plan.cost.staleness, plan.choice.strategy == "served" ? 7 : 0) << plan.choice.strategy;
}

TEST(Period, IsTheMeanOfAMeetingAndOfStepsAlone) {
  StepCost meeting, alone;
  meeting.seconds = 10, meeting.split.compute = 4, meeting.split.exposed[schedule::Action::Axis::data] = 6, meeting.steps_per_s = 0.1;
  meeting.bytes[schedule::Action::Axis::data] = 400, meeting.stages.resize(1), alone.stages.resize(1);
  meeting.stages[0].bytes = meeting.bytes;
  alone.seconds = alone.split.compute = 4, alone.bottleneck = "compute";
  const StepCost mean = mean_over_period(meeting, alone, 4);
  EXPECT_DOUBLE_EQ(mean.seconds, (10 + 3 * 4) / 4.0);
  EXPECT_DOUBLE_EQ(mean.split.total(), mean.seconds);
  EXPECT_DOUBLE_EQ(mean.split.exposed.sum(), 1.5);
  EXPECT_DOUBLE_EQ(mean.stages[0].bytes.sum(), 100);
  EXPECT_DOUBLE_EQ(mean.steps_per_s, 1 / 5.5);
  EXPECT_EQ(mean.bottleneck, "compute");
  EXPECT_DOUBLE_EQ(mean_over_period(meeting, alone, 1).seconds, 10);
}

TEST(RunSteps, AreKeptInAFileBesideTheCluster) {
  RunStep first{.network = "mlp", .optimizer = "sgd", .parameters = 10, .way = {"parallel.workers=2"}, .batch = 16, .seconds = 1};
  RunStep second = first;
  second.batch = 32, second.seconds = 3;
  const TemporaryFolder folder;
  const std::string file = steps_file((folder / "my.toml").string());
  EXPECT_THAT(file, testing::EndsWith("my.steps.json"));
  EXPECT_TRUE(read_steps(file).empty());
  keep_steps(file, {first, second});
  first.seconds = 2;
  keep_steps(file, {first});
  EXPECT_THAT(read_steps(file), testing::UnorderedElementsAre(first, second)) << "the second measurement replaces the first";
  RunStep plain = first, moving = first;
  plain.moments = 0, moving.moments = 1;
  keep_steps(file, {plain, moving});
  EXPECT_THAT(read_steps(file), testing::UnorderedElementsAre(plain, moving, second)) << "an optimizer that keeps nothing is another one";
  first.seconds = 0;
  keep_steps(file, {first});
  EXPECT_THAT(message_of<ConfigError>([&] { read_steps(file); }), testing::AllOf(HasSubstr("my.steps.json"), HasSubstr("s for a step")));
}

TEST(Plan, RunsThatTookLongerCorrectTheirKind) {
  const graph::Graph graph = network("alexnet");
  PlanQuestion question = ask(graph, "p100", 16, 64);
  const Plans plain = make_plans(question);
  const Choice first = plain.exact.front().choice, second = plain.exact.at(1).choice;
  const auto factor = [](const Choice& choice) { return choice.program.zero == 0 ? 3.0 : 1.2; };  // few of those without ZeRO stay
  question.correction = factor;
  const Plans corrected = make_plans(question);
  EXPECT_TRUE(std::ranges::is_sorted(corrected.exact, {}, [](const Plan& plan) { return plan.cost.seconds; }));
  EXPECT_NE(corrected.exact.front().choice.program.zero, 0);
  for (const Plan& plan : corrected.exact) {
    PlanQuestion uncorrected = question;
    uncorrected.correction = nullptr;
    const double before = cost_choice(uncorrected, plan.choice).cost.seconds;
    EXPECT_NEAR(plan.cost.seconds, before * factor(plan.choice), 1e-9 * before);
    EXPECT_NEAR(plan.cost.split.total(), plan.cost.seconds, 1e-6 * plan.cost.seconds);
  }
  // The second was faster by the clock than the first one's prediction.
  question.correction = nullptr;
  const double seconds = plain.exact.front().cost.seconds / 2;
  question.measured = [&](const Choice& choice) { return title_of(choice) == title_of(second) ? std::optional(seconds) : std::nullopt; };
  const Plans measured = make_plans(question);
  EXPECT_EQ(title_of(measured.exact.front().choice), title_of(second));
  EXPECT_EQ(measured.exact.front().measured_s, seconds);
}

TEST(Plan, AChoiceInARecipesWords) {
  Choice choice;
  choice.program.data = 4, choice.program.pipeline = 2, choice.program.zero = 1, choice.program.micro_batches = 8;
  choice.program.recompute = "units";
  EXPECT_THAT(settings_of(choice), testing::IsSupersetOf({"parallel.data=4", "parallel.pipeline=2", "parallel.zero=1",
                                                          "train.micro_batches=8", "train.recompute=\"units\""}));
  EXPECT_EQ(title_of(choice), "data 4 × pipeline 2, ZeRO 1, 1f1b, 8 micro-batches, recompute units");
  Choice other;
  other.strategy = "rarely", other.together = false, other.program.data = 4;
  EXPECT_THAT(settings_of(other), testing::ElementsAre("strategy.name=\"rarely\"", "parallel.workers=4")) << "it has no mesh";
  EXPECT_EQ(title_of(other), "rarely, data 4");
}

TEST(Plan, AChoiceHasTheProgramsOfItsStrategy) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "v100", 8, 8);
  question.strategies.alone.programs = [](const schedule::ProgramModel&, const schedule::ProgramSettings&) { return Steps(1); };
  question.strategies.together.programs = [](const schedule::ProgramModel&, const schedule::ProgramSettings&) { return Steps(2); };
  question.strategies.others = {
      {.key = "rarely", .programs = [](const schedule::ProgramModel&, const schedule::ProgramSettings&) { return Steps(3); }}};
  Choice choice;
  std::vector<std::size_t> programs;
  for (const char* key : {"single", "allreduce", "rarely"}) {
    choice.strategy = key;
    programs.push_back(programs_of(question, choice).size());
  }
  EXPECT_THAT(programs, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(meshes(question).front().strategy, "allreduce");
  question.workers = 1;
  EXPECT_EQ(meshes(question).front().strategy, "single");
}

TEST(Plan, MostChoicesForAThousandDevicesAreNeverPlayed) {
  const graph::Graph graph = small_gpt(24, 1024);
  const Plans plans = make_plans(ask(graph, "h100", 1024, 4096));
  EXPECT_GT(plans.considered, 500);
  EXPECT_LT(plans.costed, plans.considered / 2);
}

}  // namespace
}  // namespace paceline::perf
