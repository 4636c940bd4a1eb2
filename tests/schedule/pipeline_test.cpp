// Pipeline schedules: what every list must hold, their play against closed formulas, and refusals.
#include "paceline/schedule/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "paceline/schedule/pipeline_drawing.h"
#include "paceline/schedule/pipeline_play.h"

namespace paceline::schedule {
namespace {

using testing::HasSubstr;
using Kind = PipelineStep::Kind;
using Row = Entry<PipelineSchedule>;

std::vector<PipelineSteps> lists_of(const Row& row, const PipelineProblem& problem) {
  std::vector<PipelineSteps> lists;
  for (int rank = 0; rank < problem.stages; ++rank) lists.push_back(steps_of(row, problem, rank));
  return lists;
}

/// Every schedule with every number of stages, micro-batches and chunks that is worth it.
template <class Check>
void for_all(const Check& check) {
  for (const Row& row : pipelines())
    for (const int stages : {1, 2, 3, 4, 8})
      for (const int micro_batches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 32})
        for (const int chunks : {1, 2, 3, 4}) {
          if (chunks > 1 && !row.make.interleaved) continue;
          const PipelineProblem problem{.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
          SCOPED_TRACE(testing::Message() << row.key << " of " << stages << " stages, " << micro_batches << " micro-batches, " << chunks
                                          << " chunks");
          check(row, problem);
        }
}

TEST(Pipelines, EveryMicroBatchPassesEveryStageOnceInItsOrder) {
  for_all([](const Row& row, const PipelineProblem& problem) {
    for (const PipelineSteps& list : lists_of(row, problem)) {
      std::map<int, int> forward, back, weights;  // by chunk: the micro-batch that is next
      for (const PipelineStep& step : list) {
        if (step.kind == Kind::forward) {
          ASSERT_EQ(step.micro_batch, forward[step.chunk]++);
        }
        if (goes_back(step.kind)) {
          ASSERT_EQ(step.micro_batch, back[step.chunk]++) << "gradients are added in this order";
          ASSERT_LE(back[step.chunk], forward[step.chunk]);
        }
        if (frees(step.kind)) {
          ASSERT_EQ(step.micro_batch, weights[step.chunk]++);
          ASSERT_LE(weights[step.chunk], back[step.chunk]);
        }
      }
      for (int chunk = 0; chunk < problem.chunks; ++chunk) {
        EXPECT_EQ(forward[chunk], problem.micro_batches);
        EXPECT_EQ(back[chunk], problem.micro_batches);
        EXPECT_EQ(weights[chunk], problem.micro_batches) << "each backward step makes them, or puts them off to one that does";
      }
    }
  });
}

TEST(Pipelines, WhatIsSentIsReceivedInTheSameOrder) {
  for_all([](const Row& row, const PipelineProblem& problem) {
    using Lane = std::tuple<int, int, int, bool>;  // from, to, border, direction: what a tag tells apart
    std::map<Lane, std::vector<int>> sends, receives;
    const std::vector<PipelineSteps> lists = lists_of(row, problem);
    for (int rank = 0; rank < problem.stages; ++rank)
      for (const PipelineStep& step : lists[static_cast<std::size_t>(rank)]) {
        if (const auto out = sent(problem, rank, step)) sends[{rank, out->peer, out->border, out->gradients}].push_back(out->micro_batch);
        if (const auto in = received(problem, rank, step)) receives[{in->peer, rank, in->border, in->gradients}].push_back(in->micro_batch);
      }
    EXPECT_EQ(sends, receives);
    const auto borders = static_cast<std::size_t>(problem.stages > 1 ? problem.virtual_stages() - 1 : 0);
    EXPECT_EQ(sends.size(), 2 * borders);
    for (const auto& [lane, micro_batches] : sends) EXPECT_EQ(std::ssize(micro_batches), problem.micro_batches);
  });
}

TEST(Pipelines, PlayAgreesWithTheFormulas) {
  for_all([](const Row& row, const PipelineProblem& problem) {
    for (const PipelineCosts& costs : {PipelineCosts{1, 1, 1}, PipelineCosts{1, 1.25, 0.75}, PipelineCosts{2, 3, 2}}) {
      const PipelinePlay play = schedule::play(row, problem, costs);  // throws where ranks would wait for ever
      const double idle = row.make.idle(problem, costs), busy = problem.micro_batches * costs.sum();
      if (problem.chunks == 1 || problem.micro_batches % problem.stages == 0) {
        EXPECT_NEAR(play.makespan, busy + idle, 1e-9 * busy);
        EXPECT_NEAR(play.bubble, bubble_share(row.make, problem, costs), 1e-9);
        for (int rank = 0; rank < problem.stages; ++rank)
          EXPECT_EQ(play.in_flight[static_cast<std::size_t>(rank)], row.make.in_flight(problem, rank)) << "rank " << rank;
      } else {
        EXPECT_GE(play.makespan, busy - 1e-9 * busy);
        for (int rank = 0; rank < problem.stages; ++rank)
          EXPECT_LE(play.in_flight[static_cast<std::size_t>(rank)], row.make.in_flight(problem, rank)) << "rank " << rank;
      }
    }
  });
}

// The numbers of the literature, by hand: 4 stages and 8 micro-batches.
TEST(Pipelines, BubblesOfTheLiterature) {
  const PipelineCosts even;
  const auto share = [&](std::string_view key, int chunks = 1) {
    return bubble_share(find(pipelines(), "pipeline", key).make, {.stages = 4, .micro_batches = 8, .chunks = chunks}, even);
  };
  EXPECT_DOUBLE_EQ(share("gpipe"), 3.0 / 11);
  EXPECT_DOUBLE_EQ(share("1f1b"), 3.0 / 11);
  EXPECT_DOUBLE_EQ(share("interleaved_1f1b", 2), 3.0 / 19);
  EXPECT_DOUBLE_EQ(share("zero_bubble"), 3.0 / 27) << "(S - 1)(F + B - W) of idle time";
}

TEST(Pipelines, OneForwardOneBackwardByHand) {
  const Row& row = find(pipelines(), "pipeline", "1f1b");
  const PipelineSteps first = {{Kind::forward, 0}, {Kind::forward, 1},  {Kind::backward, 0},
                               {Kind::forward, 2}, {Kind::backward, 1}, {Kind::backward, 2}};
  const PipelineSteps last = {{Kind::forward, 0},  {Kind::backward, 0}, {Kind::forward, 1},
                              {Kind::backward, 1}, {Kind::forward, 2},  {Kind::backward, 2}};
  EXPECT_EQ(steps_of(row, {.stages = 2, .micro_batches = 3}, 0), first);
  EXPECT_EQ(steps_of(row, {.stages = 2, .micro_batches = 3}, 1), last);
}

TEST(Pipelines, ZeroBubblePutsWeightGradientsOffByHand) {
  const Row& row = find(pipelines(), "pipeline", "zero_bubble");
  const PipelineSteps last = {{Kind::forward, 0},        {Kind::backward_input, 0},   {Kind::forward, 1},
                              {Kind::backward_input, 1}, {Kind::weight_gradients, 0}, {Kind::forward, 2},
                              {Kind::backward_input, 2}, {Kind::weight_gradients, 1}, {Kind::weight_gradients, 2}};
  EXPECT_EQ(steps_of(row, {.stages = 2, .micro_batches = 3}, 1), last);
}

TEST(Pipelines, NeighboursOfAChunkWrapAround) {
  const PipelineProblem problem{.stages = 3, .micro_batches = 3, .chunks = 2};
  const PipelineStep there{Kind::forward, 1, 0}, back{Kind::backward, 1, 1};
  EXPECT_EQ(sent(problem, 2, there), (PipelineMessage{.peer = 0, .border = 2, .micro_batch = 1, .gradients = false}));
  EXPECT_EQ(received(problem, 0, {Kind::forward, 1, 1}), (PipelineMessage{.peer = 2, .border = 2, .micro_batch = 1, .gradients = false}));
  EXPECT_EQ(sent(problem, 0, back), (PipelineMessage{.peer = 2, .border = 2, .micro_batch = 1, .gradients = true}));
  EXPECT_EQ(received(problem, 0, there), std::nullopt) << "the sample comes from nobody";
  EXPECT_EQ(received(problem, 2, back), std::nullopt) << "and its loss is made here";
  EXPECT_EQ(sent(problem, 1, {Kind::weight_gradients, 1, 0}), std::nullopt);
}

TEST(Pipelines, TransfersAndUnevenStagesAreCounted) {
  const Row& row = find(pipelines(), "pipeline", "gpipe");
  EXPECT_DOUBLE_EQ(play(row, {.stages = 2, .micro_batches = 1}, {1, 1, 1}, 0.5).makespan, 7) << "two borders are crossed";
  const PipelineProblem problem{.stages = 2, .micro_batches = 4};
  const PipelinePlay uneven = play(lists_of(row, problem), problem, {{1, 1, 1}, {2, 2, 2}});
  EXPECT_DOUBLE_EQ(uneven.makespan, 1 + 4 * 6 + 2) << "the slower stage is never idle between its first and last step";
  EXPECT_EQ(uneven.messages, 8);
}

TEST(Pipelines, RanksThatWaitForOneAnotherAreFound) {
  const PipelineProblem problem{.stages = 2, .micro_batches = 2};
  std::vector<PipelineSteps> lists = lists_of(find(pipelines(), "pipeline", "1f1b"), problem);
  std::swap(lists[0][1], lists[0][2]);  // takes micro-batch 0 back before 1 goes forward: slower, but it ends
  EXPECT_NO_THROW(play(lists, problem, std::vector<StageCosts>(2)));
  std::swap(lists[1][0], lists[1][1]);  // back before forward
  EXPECT_THROW(play(lists, problem, std::vector<StageCosts>(2)), InternalError);
}

TEST(Pipelines, WhatCannotBeIsRefused) {
  const auto refusal = [](std::string_view key, const PipelineProblem& problem, int rank = 0) -> std::string {
    try {
      steps_of(find(pipelines(), "pipeline schedule", key), problem, rank);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("1f1b", {.stages = 2, .micro_batches = 4, .chunks = 2}), HasSubstr("interleaved_1f1b"));
  EXPECT_THAT(refusal("gpipe", {.stages = 0, .micro_batches = 4}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal("gpipe", {.stages = 2, .micro_batches = 4}, 2), HasSubstr("0 to 1"));
  EXPECT_THAT(refusal("1f1", {.stages = 2, .micro_batches = 4}), HasSubstr("'1f1b'"));
}

TEST(PipelinePicture, HasABoxForEveryStep) {
  for (const Row& row : pipelines()) {
    const PipelineProblem problem{.stages = 4, .micro_batches = 8, .chunks = row.make.interleaved ? 2 : 1};
    const std::string svg = pipeline_drawing(row, problem, {});
    std::size_t numbers = 0, steps = 0;
    for (std::size_t at = svg.find("class=\"number\""); at != std::string::npos; at = svg.find("class=\"number\"", at + 1)) ++numbers;
    for (const PipelineSteps& list : lists_of(row, problem)) steps += list.size();
    EXPECT_EQ(numbers, steps) << row.key;
    EXPECT_THAT(svg, HasSubstr("</svg>"));
  }
  EXPECT_THROW(pipeline_drawing(pipelines()[0], {.stages = 64, .micro_batches = 64}, {}), ConfigError);
}

}  // namespace
}  // namespace paceline::schedule
