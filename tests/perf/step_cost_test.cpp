// Step programs with costs that can be added up by hand, and pipelines against their schedules' own play.
#include "paceline/perf/step_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/schedule/pipeline_play.h"
#include "paceline/schedule/program_writer.h"
#include "tests/message_of.h"
#include "tests/perf/hand_programs.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using schedule::Program;
using schedule::ProgramSettings;
using Axis = Action::Axis;
using Exchange = Action::Exchange;
using Lane = Action::Lane;
using Work = Action::Work;

Action update_of(std::int64_t elements, Lane lane = Lane::compute) {
  return {.kind = Action::Kind::compute, .lane = lane, .work = Work::update, .elements = elements};
}

// Two workers, a ring of 2 rounds: 2(α + n/2B) = 2α + n/B. α = 1 s, B = 4 B/s, so n elements of 4 bytes take 2 + n seconds.
Cluster slow_pair() { return even_cluster(2, 1, 4); }
ProgramSettings pair_settings() { return {.data = 2, .samples = 2}; }

TEST(StepCost, OfOneWorkerIsItsComputation) {
  HandTimes times;
  times.update = 0.5;
  const Program program{pass_of(Work::forward, 0, 3), pass_of(Work::backward, 0, 3), update_of(4)};
  const StepCost cost = cost_of(std::array{program}, {.samples = 2}, times, even_cluster(1, 1, 1));
  EXPECT_DOUBLE_EQ(cost.seconds, 6 + 12 + 2);
  EXPECT_DOUBLE_EQ(cost.split.compute, 18);
  EXPECT_DOUBLE_EQ(cost.split.optimizer, 2);
  EXPECT_DOUBLE_EQ(cost.split.exposed.sum() + cost.split.bubble, 0);
  EXPECT_EQ(cost.bottleneck, "compute");
  EXPECT_DOUBLE_EQ(cost.steps_per_s, 1 / 20.0);
}

TEST(StepCost, OfAnAllreduceBehindThePassIsExposed) {
  const HandTimes times;
  const Program program{pass_of(Work::forward, 0, 1), pass_of(Work::backward, 0, 1), exchange_of(Exchange::allreduce, Axis::data, 10)};
  const StepCost cost = cost_of(std::array{program}, pair_settings(), times, slow_pair());
  EXPECT_DOUBLE_EQ(cost.seconds, 6 + 12);
  EXPECT_DOUBLE_EQ(cost.split.exposed[Axis::data], 12);
  EXPECT_DOUBLE_EQ(cost.bytes[Axis::data], 40) << "2(p−1)/p of 40 bytes";
  EXPECT_EQ(cost.bottleneck, "data communication");
}

/// A bucket of each of two units leaves on the exchange lane and is updated there.
Program overlapping(std::int64_t first, std::int64_t second) {
  return {pass_of(Work::forward, 0, 2),
          pass_of(Work::backward, 1, 2),
          exchange_of(Exchange::allreduce, Axis::data, second, Lane::exchange, {1}),
          update_of(second, Lane::exchange),
          pass_of(Work::backward, 0, 1),
          exchange_of(Exchange::allreduce, Axis::data, first, Lane::exchange, {4}),
          update_of(first, Lane::exchange),
          wait_for({6})};
}

TEST(StepCost, HidesWhatRunsBesideThePass) {
  HandTimes times;
  times.update = 0.5;
  // Forward until 4, backward until 8 and 12. The first bucket of 1 element: 8 to 11 and its update to 11.5; the second: 12 to 15, 15.5.
  const StepCost cost = cost_of(std::array{overlapping(1, 1)}, pair_settings(), times, slow_pair());
  EXPECT_DOUBLE_EQ(cost.seconds, 15.5);
  EXPECT_DOUBLE_EQ(cost.split.compute, 12);
  EXPECT_DOUBLE_EQ(cost.split.exposed[Axis::data], 3);
  EXPECT_DOUBLE_EQ(cost.split.optimizer, 0.5);
  EXPECT_DOUBLE_EQ(cost.communication[Axis::data], 6);
}

TEST(StepCost, ExplainsAWaitByTheChainBehindIt) {
  HandTimes times;
  times.update = 0.5;
  // 10 elements: 8 to 20, update to 25; then 12 + 5 more: 42.
  const StepCost cost = cost_of(std::array{overlapping(10, 10)}, pair_settings(), times, slow_pair());
  EXPECT_DOUBLE_EQ(cost.seconds, 42);
  EXPECT_DOUBLE_EQ(cost.split.compute, 12);
  EXPECT_DOUBLE_EQ(cost.split.exposed[Axis::data], 8 + 12) << "from 12 to 20, and from 25 to 37";
  EXPECT_DOUBLE_EQ(cost.split.optimizer, 5 + 5);
  EXPECT_DOUBLE_EQ(cost.split.bubble, 0);
}

TEST(StepCost, ComputesMoreSlowlyBesideCommunication) {
  const HandTimes times;
  Cluster cluster = slow_pair();
  cluster.device.slowdown = {1.5, Source::measured};
  // The second backward pass (4 s) begins at 8 beside an allreduce of 3 s, in which it does 2 s of its work: it ends at 8 + 3 + 2 = 13.
  const StepCost cost = cost_of(std::array{overlapping(1, 1)}, pair_settings(), times, cluster);
  EXPECT_DOUBLE_EQ(cost.seconds, 13 + 3);
  EXPECT_DOUBLE_EQ(cost.split.compute, 13);
  // An allreduce that outlasts the pass slows all of it: 4 s become 6.
  const StepCost longer = cost_of(std::array{overlapping(1, 100)}, pair_settings(), times, cluster);
  EXPECT_DOUBLE_EQ(longer.split.compute, 4 + 4 + 6);
  EXPECT_DOUBLE_EQ(longer.seconds, 8 + 102 + 3);
}

TEST(StepCost, OfCodesIsEncoding) {
  HandTimes times;
  times.code = 2;
  Program program = overlapping(1, 1);
  program[3].work = Work::encode;
  const StepCost cost = cost_of(std::array{program}, pair_settings(), times, slow_pair());
  EXPECT_DOUBLE_EQ(cost.split.encoding, 1) << "from 12, when the pass is over, to 13";
  EXPECT_DOUBLE_EQ(cost.seconds, 13 + 3);
}

/// A pipeline of units that cost the same, one for each virtual stage.
struct Stages {
  schedule::ProgramModel model;
  ProgramSettings settings;
  std::vector<Program> programs;
};
Stages pipeline_of(const std::string& schedule, int stages, int micro_batches, int chunks, std::int64_t border = 0) {
  Stages made;
  made.model.units.resize(static_cast<std::size_t>(stages * chunks), {.tensors = {{.elements = 8}}, .border = border});
  made.settings = {.pipeline = stages, .samples = micro_batches, .micro_batches = micro_batches, .schedule = schedule, .chunks = chunks};
  for (int rank = 0; rank < stages; ++rank) {
    made.settings.stages.emplace_back();
    for (int chunk = 0; chunk < chunks; ++chunk)
      made.settings.stages.back().insert(made.settings.stages.back().end(), {chunk * stages + rank, chunk * stages + rank + 1});
  }
  for (int rank = 0; rank < stages; ++rank) {
    schedule::ProgramWriter writer(made.model, made.settings, rank);
    writer.passes();
    made.programs.push_back(writer.take());
  }
  return made;
}

class PipelineCost : public testing::TestWithParam<std::string> {};

TEST_P(PipelineCost, IsTheScheduleSPlay) {
  const auto& row = find(schedule::pipelines(), "pipeline schedule", GetParam());
  const int chunks = row.make.interleaved ? 2 : 1;
  for (const int stages : {2, 4})
    for (const int micro_batches : {4, 8}) {
      HandTimes times;
      times.forward = 2, times.input_gradients = 3, times.weight_gradients = 1.5;
      for (const double seconds_per_border : {0.0, 1.0}) {
        const Stages pipeline = pipeline_of(GetParam(), stages, micro_batches, chunks, seconds_per_border > 0 ? 1 : 0);
        const StepCost cost = cost_of(pipeline.programs, pipeline.settings, times, even_cluster(stages, 0, 4));
        const schedule::PipelineProblem problem{.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
        const double all = static_cast<double>(chunks);
        const schedule::PipelinePlay play = schedule::play(
            row, problem, {.forward = 2 * all, .input_gradients = 3 * all, .weight_gradients = 1.5 * all}, seconds_per_border);
        EXPECT_NEAR(cost.seconds, play.makespan, 1e-9)
            << stages << " stages, " << micro_batches << " micro-batches, " << seconds_per_border;
        EXPECT_NEAR(cost.split.total(), cost.seconds, 1e-9);
        if (seconds_per_border == 0) EXPECT_NEAR(cost.split.bubble / cost.seconds, play.bubble, 1e-9);
        else EXPECT_GT(cost.split.exposed[Axis::pipeline], 0);
        for (const StageCost& stage : cost.stages) EXPECT_NEAR(stage.split.total(), cost.seconds, 1e-9);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Of, PipelineCost, testing::Values("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"),
                         [](const auto& schedule) { return "as_" + schedule.param; });

TEST(StepCost, AWaitForAnotherStageIsABubbleUntilItsMessageLeaves) {
  const HandTimes times;
  const auto message = [](Exchange exchange, int peer, Lane lane, std::vector<int> after) {
    Action action = exchange_of(exchange, Axis::pipeline, 3, lane, std::move(after));
    action.peer = peer, action.tag = 7;
    return action;
  };
  const Program sender{pass_of(Work::forward, 0, 5), message(Exchange::send, 1, Lane::send, {0})};
  Program receiver{message(Exchange::receive, 0, Lane::receive, {}), pass_of(Work::forward, 5, 6)};
  receiver[1].after = {0};
  const ProgramSettings settings{.pipeline = 2, .samples = 1};
  const StepCost cost = cost_of(std::array{sender, receiver}, settings, times, even_cluster(2, 1, 4));
  EXPECT_DOUBLE_EQ(cost.seconds, 5 + 4 + 1);
  EXPECT_DOUBLE_EQ(cost.stages[1].split.bubble, 5);
  EXPECT_DOUBLE_EQ(cost.stages[1].split.exposed[Axis::pipeline], 4);
  EXPECT_DOUBLE_EQ(cost.stages[0].split.bubble, 1);
  EXPECT_THAT(message_of<ConfigError>([&] {
                cost_of(std::array{Program{}, receiver}, settings, times, even_cluster(2, 1, 4));
              }),
              testing::AllOf(testing::HasSubstr("stage 1"), testing::HasSubstr("tag 7")));
}

TEST(StepCost, StagesMeetInTheirCollectives) {
  const HandTimes times;
  const Program early{pass_of(Work::forward, 0, 1), exchange_of(Exchange::allreduce, Axis::pipeline, 2), pass_of(Work::forward, 0, 3)};
  const Program late{pass_of(Work::forward, 1, 6), exchange_of(Exchange::allreduce, Axis::pipeline, 2)};
  const StepCost cost = cost_of(std::array{early, late}, {.pipeline = 2}, times, slow_pair());
  EXPECT_DOUBLE_EQ(cost.seconds, 5 + 4 + 3);
  EXPECT_DOUBLE_EQ(cost.stages[0].split.bubble, 4);
  EXPECT_DOUBLE_EQ(cost.stages[0].split.exposed[Axis::pipeline], 4);
}

TEST(StepCost, WaitsForTheSlowestOfManyWorkers) {
  const HandTimes times;
  const Program program{pass_of(Work::forward, 0, 1)};
  const CostOptions options{.jitter = {.distribution = "exponential_tail", .tail = 0.5}};
  const StepCost cost = cost_of(std::array{program}, {.data = 2, .samples = 4}, times, slow_pair(), options);
  EXPECT_DOUBLE_EQ(cost.seconds, 4 * (0.5 + 0.5 * 1.5));
  EXPECT_DOUBLE_EQ(cost.split.straggling, 1);
  EXPECT_DOUBLE_EQ(cost.split.total(), cost.seconds);
}

TEST(StepCost, IntervalsAreAsWideAsTheirSources) {
  HandTimes times;
  times.off = 0.1;
  const Program program{pass_of(Work::forward, 0, 1), exchange_of(Exchange::allreduce, Axis::data, 10)};
  Cluster cluster = slow_pair();
  const StepCost measured = cost_of(std::array{program}, pair_settings(), times, cluster);
  EXPECT_NEAR(measured.high - measured.seconds, 0.1 * 2 + 0.05 * 12, 1e-12);
  EXPECT_NEAR(measured.seconds - measured.low, 0.1 * 2 + 0.05 * 12, 1e-12);
  cluster.between.latency.source = Source::standard;
  EXPECT_NEAR(cost_of(std::array{program}, pair_settings(), times, cluster).high - measured.seconds, 0.1 * 2 + 0.3 * 12, 1e-12);
}

/// A worker of a parameter server: 2 seconds of computation between a pull and a push of 40 bytes.
Program visitor() {
  return {exchange_of(Exchange::pull, Axis::server, 10), pass_of(Work::forward, 0, 1), exchange_of(Exchange::push, Axis::server, 10)};
}

TEST(StepCost, SynchronousWorkersCrowdTheirServers) {
  const HandTimes times;
  const Cluster cluster = even_cluster(10, 0, 4);
  ProgramSettings settings{.data = 6, .samples = 2, .servers = 2};
  const StepCost cost = cost_of(std::array{visitor()}, settings, times, cluster);
  EXPECT_DOUBLE_EQ(cost.seconds, 2 + 2 * (6 * 40.0 / 2 / 4));
  EXPECT_DOUBLE_EQ(cost.split.exposed[Axis::server], 60);
  EXPECT_DOUBLE_EQ(cost.staleness, 0);
  EXPECT_DOUBLE_EQ(cost_of(std::array{visitor()}, settings, times, cluster, {.server_hosts = 1}).seconds, 2 + 2 * (6 * 40.0 / 4));
  settings.data = 1;
  EXPECT_DOUBLE_EQ(cost_of(std::array{visitor()}, settings, times, cluster).seconds, 2 + 2 * (40.0 / 4)) << "its own link";
}

TEST(StepCost, ServersUpdateTheirParts) {
  HandTimes times;
  const Cluster cluster = even_cluster(10, 0, 4);
  const ProgramSettings settings{.data = 6, .samples = 2, .servers = 2};
  const double without = cost_of(std::array{visitor()}, settings, times, cluster).seconds;
  times.update = 3;
  EXPECT_DOUBLE_EQ(cost_of(std::array{visitor()}, settings, times, cluster).seconds, without + 3 * 5) << "once for all six workers";
  const StepCost queued = cost_of(std::array{visitor()}, settings, times, cluster, {.asynchronous = true});
  EXPECT_DOUBLE_EQ(queued.steps_per_s, 1 / (40.0 / 2 / 4 + 3 * 5)) << "once for each push, which keeps the next one out";
}

TEST(StepCost, WorkersBesideSeveralServersVisitThemInTurn) {
  HandTimes times;
  Cluster cluster = even_cluster(1, 0, 4);
  cluster.devices = 6, cluster.device.memory_bandwidth = {80, Source::measured}, cluster.device.reduce_bandwidth = {20, Source::measured};
  const auto seconds = [&](int servers) {
    return cost_of(std::array{visitor()}, {.data = 6, .samples = 2, .servers = servers}, times, cluster).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(1), 2 + 2.5 * 1 + 6 * 2) << "copies of 1 s, and 40 bytes of each of six workers";
  EXPECT_DOUBLE_EQ(seconds(2), 2 + 2.5 * 1 + 7 * 1) << "halves, one worker behind the other";
  const double without = seconds(2);
  times.update = 3;
  EXPECT_DOUBLE_EQ(seconds(2), without + 3 * 10) << "the last worker has both updated";
}

TEST(StepCost, AsynchronousWorkersShareTheServersRate) {
  const HandTimes times;
  const Cluster cluster = even_cluster(1000, 0, 4);
  const CostOptions options{.asynchronous = true};
  ProgramSettings settings{.data = 1, .samples = 2, .servers = 4};
  const StepCost alone = cost_of(std::array{visitor()}, settings, times, cluster, options);
  EXPECT_DOUBLE_EQ(alone.seconds, 2 + 2 * 10);
  EXPECT_DOUBLE_EQ(alone.staleness, 0);
  settings.data = 500;
  const StepCost many = cost_of(std::array{visitor()}, settings, times, cluster, options);
  EXPECT_NEAR(many.steps_per_s, 4 * 4 / 40.0, 1e-9) << "four servers, each with a quarter of 40 bytes at 4 B/s";
  EXPECT_DOUBLE_EQ(many.staleness, 499);
  EXPECT_NEAR(many.split.total(), many.seconds, 1e-6);
}

TEST(StepCost, RanksThatAreMoreThanTheDevicesTakeTurns) {
  const HandTimes times;
  Cluster cluster = even_cluster(1, 0, 4);
  cluster.devices = 2;  // places for ranks, on one device
  const Program both{pass_of(Work::forward, 0, 1), pass_of(Work::backward, 0, 1)};
  EXPECT_DOUBLE_EQ(cost_of(std::array{both}, pair_settings(), times, cluster).seconds, 6);
  EXPECT_DOUBLE_EQ(cost_of(std::array{both}, pair_settings(), times, cluster, {.crowd = 2}).seconds, 12);
}

TEST(StepCost, AStageThatWaitsLeavesTheDeviceToItsNeighbour) {
  const HandTimes times;
  Cluster cluster = even_cluster(1, 0, 4);
  cluster.devices = 2;
  const Program first{pass_of(Work::forward, 0, 1), pass_of(Work::backward, 0, 1)}, last{pass_of(Work::forward, 0, 1)};
  const StepCost cost = cost_of(std::array{first, last}, {.pipeline = 2, .samples = 2}, times, cluster, {.crowd = 2});
  EXPECT_DOUBLE_EQ(cost.seconds, 8) << "both at half speed until the second has made its 2 s, then 4 s of the first alone";
}

TEST(StepCost, HasWhatARunDoesAroundItsPasses) {
  HandTimes times;
  times.around = 0.5;
  const Program program{pass_of(Work::forward, 0, 3)};
  const StepCost cost = cost_of(std::array{program}, {.samples = 2}, times, even_cluster(1, 1, 1));
  EXPECT_DOUBLE_EQ(cost.seconds, 6 + 1);
  EXPECT_DOUBLE_EQ(cost.split.total(), cost.seconds);
}

TEST(StepCost, MemoryThatComesAndGoesTakesItsTime) {
  const HandTimes times;
  Cluster cluster = slow_pair();
  const Program program{exchange_of(Exchange::all_gather, Axis::data, 10), exchange_of(Exchange::reduce_scatter, Axis::data, 10)};
  ProgramSettings settings = pair_settings();
  const double plain = cost_of(std::array{program}, settings, times, cluster).seconds;
  cluster.device.page_bandwidth = {8, Source::measured};
  EXPECT_DOUBLE_EQ(cost_of(std::array{program}, settings, times, cluster).seconds, plain);
  settings.zero = 2;
  EXPECT_DOUBLE_EQ(cost_of(std::array{program}, settings, times, cluster).seconds, plain + 5) << "gradients";
  settings.zero = 3;
  EXPECT_DOUBLE_EQ(cost_of(std::array{program}, settings, times, cluster).seconds, plain + 10) << "parameters as well";
}

TEST(StepCost, AServerBesideItsWorkersIsMemory) {
  HandTimes times;
  times.update = 1;
  Cluster cluster = even_cluster(1, 0, 4);
  cluster.devices = 3;
  cluster.device.memory_bandwidth = {8, Source::measured}, cluster.device.reduce_bandwidth = {20, Source::measured};
  const StepCost cost = cost_of(std::array{visitor()}, {.data = 3, .samples = 2}, times, cluster);
  EXPECT_DOUBLE_EQ(cost.seconds, 2 + (80 / 8.0) + (1.5 * 80 / 8 + 3 * 40 / 20.0 + 10)) << "pass, copy, and look, copy, additions, update";
}

TEST(StepCost, RefusesAMeshThatTheClusterCannotHold) {
  EXPECT_THAT(message_of<ConfigError>([] { cost_of(std::array{Program{}}, {.data = 3}, HandTimes(), slow_pair()); }),
              testing::AllOf(testing::HasSubstr("data=3"), testing::HasSubstr("2 devices")));
}

}  // namespace
}  // namespace paceline::perf
