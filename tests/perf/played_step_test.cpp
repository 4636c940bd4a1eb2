// Steps of many micro-batches, from the plays of shorter ones.
#include "paceline/perf/played_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "paceline/perf/plan_costs.h"
#include "paceline/perf/plan_space.h"
#include "paceline/perf/roofline_times.h"
#include "plan_questions.h"

namespace paceline::perf {
namespace {

/// Steps of a stage that takes a second for each micro-batch, and half a second more for the first of them; `drift`: of seconds, which
/// never settles.
struct Settling {
  std::int64_t settles = 0;
  double drift = 0;
  std::vector<std::int64_t> played = {};

  PlayedStep operator()(std::int64_t micro_batches) {
    played.push_back(micro_batches);
    const auto count = static_cast<double>(micro_batches);
    PlayedStep step;
    step.seconds = 7 + count + 0.5 * static_cast<double>(std::min(micro_batches, settles)) + drift * count * count;
    step.stages.resize(1);
    step.stages[0].split.compute = step.seconds;
    step.doubt.outside["rarely"] = count;
    return step;
  }
};

TEST(PlayLonger, ContinuesARoundThatRepeats) {
  Settling play;
  const std::optional<PlayedStep> step = play_longer(std::ref(play), 1000, 4);
  ASSERT_TRUE(step);
  EXPECT_DOUBLE_EQ(step->seconds, 1007);
  EXPECT_DOUBLE_EQ(step->stages.at(0).split.compute, 1007);
  EXPECT_DOUBLE_EQ(step->doubt.outside.at("rarely"), 1000);
  EXPECT_THAT(play.played, testing::ElementsAre(8, 12, 16));
}

TEST(PlayLonger, TakesLongerRoundsUntilThePipelineHasSettled) {
  Settling play{.settles = 14};
  const std::optional<PlayedStep> step = play_longer(std::ref(play), 1000, 4);
  ASSERT_TRUE(step);
  EXPECT_DOUBLE_EQ(step->seconds, 1007 + 7);
  EXPECT_THAT(play.played, testing::ElementsAre(8, 12, 16, 24, 32)) << "none is played twice";
}

TEST(PlayLonger, NoStageComputesLongerThanTheStepGrows) {
  std::vector<std::int64_t> played;
  const auto play = [&](std::int64_t micro_batches) {  // the second stage is the slower one, but has less to do at the end
    played.push_back(micro_batches);
    const auto count = static_cast<double>(micro_batches);
    PlayedStep step;
    step.busy = {count, 1.5 * count};
    step.seconds = std::max(20 + step.busy[0], step.busy[1]);
    return step;
  };
  const std::optional<PlayedStep> step = play_longer(play, 1000, 4);
  ASSERT_TRUE(step);
  EXPECT_DOUBLE_EQ(step->seconds, 1500);
  EXPECT_GE(played.back(), 40) << "until then the first stage decides";
}

TEST(PlayLonger, GivesUpWhereTheStepItselfIsPlayedSooner) {
  Settling never{.drift = 1e-3};
  EXPECT_EQ(play_longer(std::ref(never), 600, 4), std::nullopt);
  EXPECT_LE(never.played.back(), 600 / 2);
  Settling soon;
  EXPECT_EQ(play_longer(std::ref(soon), 36, 4), std::nullopt);
  EXPECT_TRUE(soon.played.empty());
}

void expect_near(const Split& made, const Split& whole, double seconds, const std::string& title) {
  const double rounding = 1e-8 * seconds;
  EXPECT_NEAR(made.compute, whole.compute, rounding) << title;
  EXPECT_NEAR(made.optimizer, whole.optimizer, rounding) << title;
  EXPECT_NEAR(made.bubble, whole.bubble, rounding) << title;
  for (std::size_t axis = 0; axis < kProgramAxes; ++axis) EXPECT_NEAR(made.exposed.of[axis], whole.exposed.of[axis], rounding) << title;
}

TEST(PlayLonger, IsTheStepItself) {
  const graph::Graph graph = small_gpt(7, 512);  // which no four stages share evenly
  PlanQuestion question = ask(graph, "h100", 8, 512);
  question.cluster.device.slowdown = {.value = 1.3, .source = Source::measured};
  const PlanCosts costs(question);
  int seen = 0;
  for (const Choice& mesh : meshes(question))
    for (const Choice& choice : choices_on(question, mesh)) {
      if (choice.program.micro_batches < 10 * std::max(8, choice.program.pipeline) || choice.program.zero == 2) continue;
      std::optional<Plan> plan = costs.fitted(choice);
      ASSERT_TRUE(plan);
      costs.add_cost(*plan);
      const RooflineTimes times(graph, question.cluster.device, {.tensor = choice.program.tensor, .sequence = choice.sequence});
      const StepCost whole = cost_of(programs_of(question, plan->choice), plan->choice.program, times, question.cluster);
      const std::string title = title_of(choice);
      EXPECT_NEAR(plan->cost.seconds, whole.seconds, 1e-9 * whole.seconds) << title;
      EXPECT_NEAR(plan->cost.low, whole.low, 1e-8 * whole.seconds) << title;
      EXPECT_EQ(plan->cost.notes, whole.notes) << title;
      EXPECT_EQ(plan->cost.bottleneck, whole.bottleneck) << title;
      EXPECT_DOUBLE_EQ(plan->cost.bytes.sum(), whole.bytes.sum()) << title;
      for (std::size_t stage = 0; stage < whole.stages.size(); ++stage)
        expect_near(plan->cost.stages.at(stage).split, whole.stages[stage].split, whole.seconds, title);
      ++seen;
    }
  EXPECT_GT(seen, 20);
}

std::int64_t& written() {
  static std::int64_t actions = 0;
  return actions;
}

/// Actions of all programs that a search writes, most of which it plays once.
std::int64_t written_for(const graph::Graph& graph, std::int64_t batch) {
  PlanQuestion question = ask(graph, "h100", 1024, batch);
  question.fixed = {{"pipeline", 8}, {"tensor", 8}, {"micro_batches", batch / 16}};  // samples one by one, as large networks need them
  question.strategies.together.programs = [](const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
    std::vector<schedule::Program> programs = plain_programs(model, settings);
    for (const schedule::Program& program : programs) written() += std::ssize(program);
    return programs;
  };
  written() = 0;
  make_plans(question);
  return written();
}

TEST(Plan, ALargerBatchIsNotMoreToPlay) {
  const graph::Graph graph = small_gpt(24, 1024);
  const std::int64_t few = written_for(graph, 4096), many = written_for(graph, 65536);
  EXPECT_LT(many, 2 * few);
}

}  // namespace
}  // namespace paceline::perf
