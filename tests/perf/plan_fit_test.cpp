// What the planner tries, and what it says where nothing fits.
#include "paceline/perf/plan_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/perf/plan_floor.h"
#include "paceline/perf/plan_space.h"
#include "plan_questions.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

using testing::HasSubstr;

TEST(Plan, MeshesMultiplyToTheWorkersAndDivideTheBatch) {
  const graph::Graph graph = small_gpt();
  const PlanQuestion question = ask(graph, "h100", 16, 48);
  const std::vector<Choice> found = meshes(question);
  for (const Choice& mesh : found) {
    EXPECT_EQ(mesh.workers(), 16);
    EXPECT_EQ(48 % mesh.program.data, 0);
    EXPECT_EQ(mesh.program.samples * mesh.program.data, 48);
    EXPECT_LE(mesh.program.tensor, 8) << "the tensor axis stays inside a host";
  }
  EXPECT_TRUE(std::ranges::any_of(found, [](const Choice& mesh) { return mesh.program.tensor == 8; }));
  EXPECT_TRUE(std::ranges::any_of(found, [](const Choice& mesh) { return mesh.program.pipeline == 4; }));
}

TEST(Plan, WhatFitsNowhereNamesTheSmallestClusterThatWouldDo) {
  const graph::Graph graph = small_gpt(8, 512);
  PlanQuestion question = ask(graph, "h100", 2, 16);
  const auto least = smallest_need(question);
  ASSERT_TRUE(least);
  question.memory = least->bytes - 1;
  const auto devices = smallest_cluster(question);
  ASSERT_TRUE(devices);
  EXPECT_GT(*devices, 2);
  const std::string message = message_of<ConfigError>([&] { make_plans(question); });
  EXPECT_THAT(message, HasSubstr("gpt"));
  EXPECT_THAT(message, HasSubstr("--workers " + std::to_string(*devices)));
  PlanQuestion larger = question;
  larger.workers = *devices;
  EXPECT_NO_THROW(make_plans(larger));
  question.memory = least->bytes;
  EXPECT_NO_THROW(make_plans(question));
}

TEST(Plan, TheSmallestClusterIsNotTwiceTooLarge) {
  const graph::Graph graph = small_gpt(12, 512);
  PlanQuestion question = ask(graph, "h100", 1, 64);
  const auto need_with = [&](std::int64_t workers) {
    question.workers = workers;
    return smallest_need(question)->bytes;
  };
  question.fixed = {{"data", 1}, {"tensor", 1}};
  const std::int64_t two = need_with(2), three = need_with(3);
  ASSERT_LT(three, two);
  question.workers = 1, question.memory = (two + three) / 2;
  EXPECT_EQ(smallest_cluster(question), 3);
  // Above a host, whole hosts.
  question.cluster.devices = 2, question.memory = (need_with(4) + need_with(6)) / 2, question.workers = 1;
  EXPECT_EQ(smallest_cluster(question), 6);
  // What is fixed stays: replicas of whole states never get smaller.
  question.fixed = {{"pipeline", 1}, {"tensor", 1}, {"zero", 0}};
  EXPECT_EQ(smallest_cluster(question), std::nullopt);
  question.fixed = {{"pipeline", 3}, {"data", 1}};
  EXPECT_EQ(smallest_cluster(question).value_or(3) % 3, 0);
}

TEST(Plan, WhatNoNumberOfDevicesHoldsIsRefusedWithoutTryingThemAll) {
  const graph::Graph graph = network("vgg16");
  PlanQuestion question = ask(graph, "p100", 4, 128);
  question.memory = 100'000;  // less than a convolution's weights, whose channels nobody can share any further
  EXPECT_EQ(smallest_cluster(question), std::nullopt);
  EXPECT_THAT(message_of<ConfigError>([&] { make_plans(question); }),
              testing::AllOf(HasSubstr("fits no device of 100 kB"), HasSubstr("even 65536 devices")));
}

TEST(Plan, NoChoiceOnAMeshNeedsLessThanItsFloor) {
  graph::ModelConfig tied;
  tied.network = "gpt", tied.layers = 2, tied.width = 64, tied.heads = 8, tied.classes = 500, tied.input = {32}, tied.tied = true;
  for (const graph::Graph& graph : {small_gpt(6, 64), graph::make_graph(tied), network("resnet18"), network("vgg16")})
    for (const std::int64_t storage : {2, 4}) {
      PlanQuestion question = ask(graph, "h100", 16, 64);
      question.storage = storage;
      const PlanFloor floor(question);
      const memory::Estimator estimator(graph);
      for (const Choice& mesh : all_meshes(question))
        for (Choice choice : choices_on(question, mesh)) {
          for (const char* recompute : kRecompute) {
            choice.program.recompute = recompute;
            EXPECT_LE(floor.of(mesh), bytes_needed(question, estimator, choice)) << graph.network() << ", " << title_of(choice);
          }
        }
    }
}

TEST(Plan, ATensorAxisLeavesItsHostOnlyWhereNothingFitsOtherwise) {
  const graph::Graph graph = network("vgg16");  // with a layer of 103 million parameters
  PlanQuestion question = ask(graph, "p100", 32, 1024);
  const auto widest = [&] {
    const std::vector<Choice> found = meshes(question);
    return std::ranges::max(found, {}, [](const Choice& mesh) { return mesh.program.tensor; }).program.tensor;
  };
  EXPECT_EQ(widest(), 4);
  question.memory = 100'000'000;
  EXPECT_EQ(widest(), 32);
  EXPECT_GT(smallest_need(question)->bytes, question.memory);
  const auto devices = smallest_cluster(question);
  ASSERT_TRUE(devices);
  EXPECT_LE(*devices, 512);
  EXPECT_THAT(message_of<ConfigError>([&] { make_plans(question); }), HasSubstr("--workers " + std::to_string(*devices)));
  question.workers = *devices;
  const Plan plan = make_plans(question).exact.front();
  EXPECT_GT(plan.choice.program.tensor, 4);
  EXPECT_LE(plan.bytes.total(), question.memory);
}

TEST(Plan, AFixedTensorAxisMayBeWiderThanAHost) {
  const graph::Graph graph = network("vgg16");
  PlanQuestion question = ask(graph, "p100", 64, 2048);
  question.fixed = {{"tensor", 16}};
  for (const Plan& plan : make_plans(question).exact) EXPECT_EQ(plan.choice.program.tensor, 16) << title_of(plan.choice);
}

TEST(Plan, AdviceBeyondTheClusterNamesALargerOne) {
  const graph::Graph graph = small_gpt(8, 512);
  PlanQuestion question = ask(graph, "laptop", 4, 16);
  question.memory = smallest_need(question)->bytes * 3 / 4;
  const auto devices = smallest_cluster(question);
  ASSERT_TRUE(devices);
  ASSERT_GT(*devices, 4);
  EXPECT_THAT(message_of<ConfigError>([&] { make_plans(question); }),
              testing::AllOf(HasSubstr("cluster of " + std::to_string((*devices + 3) / 4) + " hosts"), HasSubstr("1 host")));
}

TEST(Plan, AnyNumberOfSamplesIsComputedOneByOne) {
  const graph::Graph graph = small_gpt();
  for (const std::int64_t batch : {7, 31}) {
    PlanQuestion question = ask(graph, "laptop", 1, batch);
    question.fixed = {{"micro_batches", batch}};
    question.memory = make_plans(question).exact.front().bytes.total();
    question.fixed.clear();
    EXPECT_EQ(make_plans(question).exact.front().choice.program.micro_batches, batch);
  }
  // Seven samples in a pipeline of eight: one micro-batch after the other keeps the stages busy.
  PlanQuestion question = ask(graph, "h100", 8, 7);
  const double best = make_plans(question).exact.front().cost.seconds;
  question.fixed = {{"micro_batches", 7}};
  EXPECT_LE(best, make_plans(question).exact.front().cost.seconds * 1.0001);
}

TEST(Plan, ManyDivisorsAreThinned) {
  const graph::Graph graph = small_gpt();
  const auto counts = [&](std::int64_t batch) {
    const PlanQuestion question = ask(graph, "laptop", 1, batch);
    std::vector<std::int64_t> found;
    for (const Choice& choice : choices_on(question, meshes(question).front())) found.push_back(choice.program.micro_batches);
    return found;
  };
  EXPECT_THAT(counts(12), testing::ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(counts(16), testing::ElementsAre(1, 2, 4, 8, 16));
  EXPECT_THAT(counts(720), testing::ElementsAre(1, 2, 4, 8, 16, 36, 72, 144, 360, 720));
}

TEST(Plan, RefusesWorkersThatAreNotThere) {
  const graph::Graph graph = network("lenet5");
  EXPECT_THAT(message_of<ConfigError>([&] { make_plans(ask(graph, "two_cores", 3, 30)); }),
              testing::AllOf(HasSubstr("two_cores"), HasSubstr("3")));
  EXPECT_THAT(message_of<ConfigError>([&] { make_plans(ask(graph, "skylake", 997, 7)); }), HasSubstr("--batch 997"));
}

TEST(Plan, KeepsSizesThatAreFixed) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "h100", 8, 32);
  question.fixed = {{"pipeline", 2}, {"zero", 1}};
  for (const Plan& plan : make_plans(question).exact) {
    EXPECT_EQ(plan.choice.program.pipeline, 2);
    EXPECT_EQ(plan.choice.program.zero, 1);
  }
}

}  // namespace
}  // namespace paceline::perf
