// Plans with gradients that travel otherwise: on every mesh on which a run accepts them, and never among the exact ones.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "paceline/perf/plan_costs.h"
#include "paceline/perf/plan_space.h"
#include "plan_questions.h"

namespace paceline::perf {
namespace {

using schedule::CompressedTraffic;

const OtherWire kRounding{.compression = "bf16", .bytes = 2, .by_value = true, .holds = {.kept = 6}};
const OtherWire kCoding{
    .compression = "topk", .bytes = 0.08, .traffic = CompressedTraffic::sparse, .holds = {.kept = 4, .codes = 0.08, .each = 0.08}};
const OtherWire kAddedUp{.bytes = 2, .traffic = CompressedTraffic::rounded, .by_value = true};

std::vector<Choice> all_choices(const PlanQuestion& question) {
  std::vector<Choice> all;
  for (const Choice& mesh : meshes(question)) std::ranges::move(choices_on(question, mesh), std::back_inserter(all));
  return all;
}

TEST(PlanWires, GoWhereRunsAcceptThem) {
  Choice choice;
  EXPECT_FALSE(with_wire(choice, kRounding)) << "one worker sends nothing";
  choice.program.data = 4, choice.program.pipeline = 2;
  for (const OtherWire& wire : {kRounding, kCoding, kAddedUp}) EXPECT_TRUE(with_wire(choice, wire)) << wire.compression;
  choice.program.tensor = 2;
  EXPECT_TRUE(with_wire(choice, kRounding));
  EXPECT_FALSE(with_wire(choice, kCoding)) << "ranks that hold a weight alike would update it differently";
  EXPECT_TRUE(with_wire(choice, kAddedUp));
  choice.program.tensor = 1, choice.program.zero = 1;
  EXPECT_FALSE(with_wire(choice, kRounding)) << "a part of a bucket cannot be compressed by itself";
  const std::optional<Choice> added = with_wire(choice, kAddedUp);
  ASSERT_TRUE(added);
  EXPECT_THAT(settings_of(*added), testing::IsSupersetOf({"comm.gradient_dtype=\"bf16\"", "parallel.zero=1"}));
  EXPECT_THAT(title_of(*added), testing::HasSubstr("gradients in bf16"));
  choice.program.zero = 0, choice.hybrid = "auto";
  EXPECT_FALSE(with_wire(choice, kRounding));
}

TEST(PlanWires, EachHasItsFastestMesh) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "p100", 8, 64);
  question.memory = 2 * make_plans(question).exact.front().bytes.total() / 3;  // replicas of the whole network do not fit
  question.strategies.wires = {kRounding, kCoding, kAddedUp};
  const Plans plans = make_plans(question);
  ASSERT_EQ(plans.others.size(), 3U);
  for (const Plan& plan : plans.exact) EXPECT_EQ(plan.choice.program.compressed, CompressedTraffic::none);
  const PlanCosts costs(question);
  for (const OtherWire& wire : question.strategies.wires) {
    double best = 1e9;
    for (const Choice& choice : all_choices(question))
      for (const char* recompute : kRecompute) {
        std::optional<Choice> other = with_wire(choice, wire);
        if (!other) continue;
        other->program.recompute = recompute;
        std::optional<Plan> plan = costs.fitted(*other);
        if (!plan) continue;
        costs.add_seconds(*plan);
        EXPECT_LE(costs.bound(*other), plan->cost.seconds * 1.0001) << title_of(*other);
        EXPECT_LE(costs.bound(*plan), plan->cost.seconds * 1.0001) << title_of(*other);
        best = std::min(best, plan->cost.seconds);
      }
    const auto found = std::ranges::find_if(plans.others, [&](const Plan& plan) {
      return plan.choice.compression == wire.compression && plan.choice.program.compressed == wire.traffic;
    });
    ASSERT_NE(found, plans.others.end()) << wire.compression;
    EXPECT_LE(found->cost.seconds, best * 1.0001) << wire.compression;
    EXPECT_LT(found->choice.program.data, 8) << wire.compression;
    EXPECT_LE(found->bytes.total(), question.memory) << wire.compression;
  }
}

TEST(PlanWires, TheCutObeysTheLimitWithWhatTheyKeep) {
  const graph::Graph graph = network("vgg16");  // whose parameters are at its end, where there is little time
  PlanQuestion question = ask(graph, "p100", 8, 64);
  Choice choice;
  for (const Choice& mesh : meshes(question))
    if (mesh.program.pipeline == 2 && mesh.program.data == 4) choice = mesh;
  ASSERT_EQ(choice.program.pipeline, 2);
  const Choice other = with_wire(choice, kRounding).value();
  const std::int64_t fastest = PlanCosts(question).fitted(other)->bytes.total();
  question.memory = fastest - 1;
  const std::optional<Plan> plan = PlanCosts(question).fitted(other);
  ASSERT_TRUE(plan) << "another cut needs less";
  EXPECT_LE(plan->bytes.total(), question.memory);
}

TEST(PlanWires, KeepWhatTheyDidNotSend) {
  const graph::Graph graph = small_gpt();
  for (const bool gpu : {false, true}) {
    PlanQuestion question = ask(graph, "p100", 8, 64);
    question.cluster.device.kind = gpu ? "gpu" : "cpu";
    const PlanCosts costs(question);
    Choice choice = meshes(question).front();
    ASSERT_EQ(choice.program.data, 8);
    const auto communication = [&](const Choice& of) { return costs.fitted(of)->bytes[memory::Category::communication]; };
    OtherWire wire = kCoding;
    const std::int64_t before = communication(choice), one = communication(*with_wire(choice, wire));
    wire.holds.kept = 8;
    EXPECT_EQ(communication(*with_wire(choice, wire)) - one, 4 * graph.parameter_count());
    const std::int64_t bucket = gpu ? graph.parameter_count() : choice.program.bucket_bytes / 4;
    const double codes = (1 + 8) * wire.bytes * static_cast<double>(bucket);
    EXPECT_NEAR(static_cast<double>(one - before), 4 * static_cast<double>(graph.parameter_count()) + codes, 1);
  }
}

TEST(PlanWires, MayTakeTheMomentumFromTheOptimizer) {
  const graph::Graph graph = small_gpt();
  PlanQuestion question = ask(graph, "p100", 8, 64);
  question.moments = 1;
  OtherWire wire = kCoding;
  const Choice choice = meshes(question).front();
  const auto moments = [&] { return PlanCosts(question).fitted(*with_wire(choice, wire))->bytes[memory::Category::moments]; };
  EXPECT_EQ(moments(), 4 * graph.parameter_count());
  wire.moments = 0;
  EXPECT_EQ(moments(), 0);
  const PlanCosts costs(question);  // which keeps times
  std::map<int, double> updates;
  for (const int kept : {1, 0}) {
    wire.moments = kept;
    std::optional<Plan> plan = costs.fitted(*with_wire(choice, wire));
    ASSERT_TRUE(plan);
    costs.add_cost(*plan);
    updates[kept] = plan->cost.split.optimizer;
  }
  EXPECT_LT(updates[0], updates[1]);
}

}  // namespace
}  // namespace paceline::perf
