// Programs whose passes are folded cost what the same programs cost action by action.
#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/perf/plan_costs.h"
#include "paceline/perf/plan_space.h"
#include "paceline/perf/roofline_times.h"
#include "plan_questions.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using schedule::Program;

std::int64_t actions_of(const std::vector<Program>& programs) {
  std::int64_t count = 0;
  for (const Program& program : programs) count += std::ssize(program);
  return count;
}

std::vector<Program> unfolded(const std::vector<Program>& programs) {
  std::vector<Program> made;
  for (const Program& program : programs)
    schedule::visit_parts(program, [&made = made.emplace_back()](const Action& action) { made.push_back(action); });
  return made;
}

void expect_near(const ByAxis& made, const ByAxis& whole, const std::string& title) {
  for (const Action::Axis axis : kAxesOfPrograms) EXPECT_NEAR(made[axis], whole[axis], 1e-9 * (1e-3 + whole[axis])) << title;
}

void expect_near(const Split& made, const Split& whole, const std::string& title) {
  const double rounding = 1e-9 * whole.total();
  EXPECT_NEAR(made.compute, whole.compute, rounding) << title;
  EXPECT_NEAR(made.optimizer, whole.optimizer, rounding) << title;
  EXPECT_NEAR(made.bubble, whole.bubble, rounding) << title;
  for (const Action::Axis axis : kAxesOfPrograms) EXPECT_NEAR(made.exposed[axis], whole.exposed[axis], rounding) << title;
}

/// How much shorter the programs become.
double compare_all(const PlanQuestion& question, std::int64_t most_actions) {
  const PlanCosts costs(question);
  std::int64_t all = 0, folded_all = 0;
  for (const Choice& mesh : meshes(question))
    for (Choice choice : choices_on(question, mesh))
      for (const char* recompute : kRecompute) {
        choice.program.recompute = recompute;
        const std::optional<Plan> plan = costs.fitted(choice);
        if (!plan) continue;
        Choice folding = plan->choice;
        folding.program.folds = true;
        const std::vector<Program> whole = costs.programs(plan->choice);
        if (actions_of(whole) > most_actions) continue;
        const std::vector<Program> folded = costs.programs(folding);
        all += actions_of(whole), folded_all += actions_of(folded);
        const RooflineTimes times(*question.graph, question.cluster.device, {.tensor = choice.program.tensor, .sequence = choice.sequence});
        const StepCost cost = cost_of(folded, folding.program, times, question.cluster);
        const StepCost by_one = cost_of(whole, plan->choice.program, times, question.cluster);
        const std::string title = title_of(plan->choice);
        EXPECT_EQ(actions_of(unfolded(folded)), actions_of(whole)) << title;
        EXPECT_NEAR(cost.seconds, by_one.seconds, 1e-9 * by_one.seconds) << title;
        EXPECT_NEAR(cost.low, by_one.low, 1e-9 * by_one.seconds) << title;
        EXPECT_EQ(cost.notes, by_one.notes) << title;
        for (std::size_t stage = 0; stage < by_one.stages.size(); ++stage) {
          expect_near(cost.stages.at(stage).split, by_one.stages[stage].split, title);
          expect_near(cost.stages[stage].communication, by_one.stages[stage].communication, title);
          expect_near(cost.stages[stage].bytes, by_one.stages[stage].bytes, title);
        }
      }
  return static_cast<double>(all) / static_cast<double>(folded_all);
}

TEST(Folded, CostsWhatItsPartsDo) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "h100", 16, 48);
  question.cluster.device.launch = {.value = 1e-5, .source = Source::measured};  // hides a part of the exchanges
  EXPECT_GT(compare_all(question, 4000), 2);
  question.fixed = {{"micro_batches", 5}};  // of different sizes
  compare_all(question, 4000);
}

TEST(Folded, CostsWhatItsPartsDoWithSharedLayers) {
  const graph::Graph graph = network("alexnet");
  compare_all(ask(graph, "p100", 8, 64), 4000);
}

TEST(Folded, IsNotForDevicesThatComputeMoreSlowlyBesideCommunication) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "h100", 8, 64);
  Choice choice = choices_on(question, meshes(question).back()).front();
  choice.program.folds = true, choice.program.data = 1, choice.program.pipeline = 1, choice.program.tensor = 8;
  const RooflineTimes times(graph, question.cluster.device, {.tensor = 8});
  const std::vector<Program> programs = programs_of(question, choice);
  EXPECT_NO_THROW(cost_of(programs, choice.program, times, question.cluster));
  question.cluster.device.slowdown = {.value = 1.3, .source = Source::measured};
  EXPECT_THROW(cost_of(programs, choice.program, times, question.cluster), InternalError);
}

}  // namespace
}  // namespace paceline::perf
