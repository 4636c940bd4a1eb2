// Programs of real forms of parallelism: what recomputation, accumulation, ZeRO, tensor ranks and experts add to a step.
#include <gtest/gtest.h>

#include "paceline/perf/step_cost.h"
#include "paceline/schedule/program_writer.h"
#include "tests/perf/hand_programs.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using schedule::ProgramModel;
using schedule::ProgramSettings;
using Axis = Action::Axis;
using Exchange = Action::Exchange;

constexpr std::int64_t kElements = 1000;  // of a unit
constexpr int kUnits = 6;

ProgramModel equal_units() {
  ProgramModel model;
  model.units.resize(kUnits, {.tensors = {{.elements = kElements}}, .border = 10});
  return model;
}

StepCost cost_of_passes(const ProgramModel& model, const ProgramSettings& settings, const Cluster& cluster,
                        const schedule::GradientListener& listener = {}) {
  schedule::ProgramWriter writer(model, settings, 0);
  writer.passes(listener);
  return cost_of(std::array{writer.take()}, settings, HandTimes(), cluster);
}

TEST(ProgramCost, RecomputationIsAForwardPassMore) {
  const Cluster alone = even_cluster(1, 0, 1);
  ProgramSettings settings{.samples = 2};
  const double plain = cost_of_passes(equal_units(), settings, alone).split.compute;
  EXPECT_DOUBLE_EQ(plain, 3 * 2 * kUnits);
  settings.recompute = "units";
  EXPECT_DOUBLE_EQ(cost_of_passes(equal_units(), settings, alone).split.compute, plain + 2 * (kUnits - 1)) << "but for the last unit";
  settings.recompute = "all";
  EXPECT_GT(cost_of_passes(equal_units(), settings, alone).split.compute, plain + 2 * (kUnits - 1));
}

TEST(ProgramCost, AccumulationComputesAsMuchInMoreParts) {
  const Cluster alone = even_cluster(1, 0, 1);
  EXPECT_DOUBLE_EQ(cost_of_passes(equal_units(), {.samples = 7, .micro_batches = 3}, alone).seconds, 3 * 7 * kUnits);
}

// p ranks, n parameters: an allreduce sends 2(p−1)/p·n; ZeRO 3 gathers twice and scatters once, 3(p−1)/p·n: 1.5 times as much.
TEST(ProgramCost, ZeroThreeSendsHalfAsMuchAgain) {
  const Cluster four = even_cluster(4, 0, 1e9);
  ProgramSettings settings{.data = 4, .zero = 3, .samples = 1, .algorithm = "ring"};
  const ProgramModel model = equal_units();
  schedule::ProgramWriter writer(model, settings, 0);
  writer.passes({.wants = [](int) { return true; },
                 .complete =
                     [&](int first, int last) {
                       writer.communicate(Action::Lane::exchange, Exchange::reduce_scatter, Axis::data, (last - first) * kElements, 4,
                                          writer.last(Action::Lane::compute));
                     }});
  const StepCost sharded = cost_of(std::array{writer.take()}, settings, HandTimes(), four);
  const double all = 4.0 * kUnits * kElements, kept = 4.0 * kElements;  // the last unit's parameters go back where they are
  EXPECT_NEAR(sharded.bytes[Axis::data], 3 * 0.75 * all, 0.75 * kept);
  EXPECT_GE(sharded.bytes[Axis::data], 3 * 0.75 * (all - kept));
  const schedule::Program plain{exchange_of(Exchange::allreduce, Axis::data, kUnits * kElements)};
  EXPECT_DOUBLE_EQ(cost_of(std::array{plain}, settings, HandTimes(), four).bytes[Axis::data], 2 * 0.75 * all);
}

// Two allreduces forward and two back in each layer: 8·b·s·h·(t−1)/t elements.
TEST(ProgramCost, TensorRanksSendWhatMegatronsDo) {
  constexpr std::int64_t kHidden = 32 * 64;  // s·h
  ProgramModel model = equal_units();
  for (ProgramModel::Unit& unit : model.units) unit.forward = unit.backward = {{.elements = kHidden}, {.elements = kHidden}};
  const StepCost cost =
      cost_of_passes(model, {.tensor = 4, .samples = 6, .micro_batches = 2, .algorithm = "ring"}, even_cluster(4, 0, 1e9));
  EXPECT_DOUBLE_EQ(cost.bytes[Axis::tensor], 4 * kUnits * 8.0 * 6 * kHidden * 3 / 4);
  EXPECT_GT(cost.split.exposed[Axis::tensor], 0) << "the pass waits for them";
  EXPECT_NEAR(cost.split.exposed[Axis::tensor], cost.communication[Axis::tensor], 1e-9);
}

TEST(ProgramCost, ExpertsExchangePositionsAlongTheDataAxis) {
  ProgramModel model = equal_units();
  const ProgramModel::LayerCollective there{.exchange = Exchange::all_to_all, .axis = Axis::data, .elements = 64};
  model.units[2].forward = model.units[2].backward = {there, there};
  const StepCost cost = cost_of_passes(model, {.data = 4, .samples = 4, .algorithm = "ring"}, even_cluster(4, 1, 1e9));
  EXPECT_NEAR(cost.split.exposed[Axis::data], 4 * 3, 1e-3) << "three rounds of a second each, twice there and back";
  EXPECT_DOUBLE_EQ(cost.bytes[Axis::data], 4 * 0.75 * 4 * 64 * 4);
}

}  // namespace
}  // namespace paceline::perf
