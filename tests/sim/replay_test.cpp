#include "paceline/sim/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "jobs.h"
#include "paceline/base/error.h"
#include "paceline/perf/closed_forms.h"
#include "paceline/perf/step_cost.h"
#include "paceline/perf/step_time.h"
#include "paceline/perf/stragglers.h"
#include "paceline/schedule/program_writer.h"

namespace paceline::sim {
namespace {

using Exchange = schedule::Action::Exchange;
using Lane = schedule::Action::Lane;
using Work = schedule::Action::Work;

constexpr double kAlpha = 1e-5, kBytesPerS = 1e9;

double ring_s(int ranks, double bytes) { return 2 * (ranks - 1) * (kAlpha + bytes / ranks / kBytesPerS); }

/// Two units forward and back, then all gradients at once.
Job plain_job(int workers, std::int64_t elements) {
  Job job{.stages = {{compute(Work::forward, 0, 2), compute(Work::backward, 0, 2), exchange(Exchange::allreduce, elements),
                      compute(Work::update, 0, 0)}},
          .settings = {},
          .cluster = hosts(workers, kAlpha, kBytesPerS)};
  job.settings.data = workers, job.settings.samples = 4, job.steps = 5;
  return job;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Replay, AStepIsComputationAndAllreduceOneAfterTheOther) {
  const Replayed done = run(plain_job(8, 1'000'000), PlainTimes(1e-3, 5e-4));
  ASSERT_EQ(done.steps.size(), 5u);
  for (const double step : done.steps) EXPECT_NEAR(step, 4e-3 + 5e-4 + ring_s(8, 4e6), 1e-8);
  EXPECT_NEAR(done.samples_per_s, 8 * 4 / done.steps.front(), 1e-3 / done.steps.front());
  for (const Spent& rank : done.ranks) {
    EXPECT_NEAR(rank.computing, 5 * 4.5e-3, 1e-7);
    EXPECT_NEAR(rank.communicating, 5 * ring_s(8, 4e6), 1e-7);
    EXPECT_NEAR(rank.waiting, 0, 1e-9);
  }
}

TEST(Replay, WorkersMeetOnceInAPeriod) {
  Job job = plain_job(8, 1'000'000);
  job.between = {{compute(Work::forward, 0, 2), compute(Work::backward, 0, 2), compute(Work::update, 0, 0)}};
  job.period = 3, job.steps = 6;
  const Replayed done = run(job);
  ASSERT_EQ(done.steps.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(done.steps[i], 4e-3 + (i % 3 == 2 ? ring_s(8, 4e6) : 0), 1e-8) << i;
  EXPECT_NEAR(done.ranks[0].communicating, 2 * ring_s(8, 4e6), 1e-7);
}

/// Seven samples in three micro-batches are two, two and three.
TEST(Replay, MicroBatchesNeedNotBeEqual) {
  class Counting final : public perf::ComputeTimes {
   public:
    double seconds(const schedule::Action&, std::int64_t samples) const override { return 1e-3 * static_cast<double>(samples); }
    perf::Doubt doubt(std::span<const std::int64_t>) const override { return {}; }
  };
  Job job = plain_job(1, 0);
  job.stages = {{}};
  for (int i = 0; i < 3; ++i) job.stages[0].push_back(compute(Work::forward, 0, 2)), job.stages[0].back().micro_batch = i;
  job.settings.samples = 7, job.settings.micro_batches = 3;
  for (const double step : run(job, Counting()).steps) EXPECT_NEAR(step, 7e-3, 1e-9);
}

TEST(Replay, OverlapIsThatOfTheStudysRecurrence) {
  // One allreduce behind each layer's backward pass, beside the next: t and c of perf/step_time.h.
  constexpr int kLayers = 5;
  const std::int64_t elements[kLayers] = {400'000, 10'000, 900'000, 100'000, 50'000};
  Job job = plain_job(8, 1);
  schedule::Program& program = job.stages.front();
  program = {compute(Work::forward, 0, kLayers)};
  std::vector<perf::LayerTime> layers;
  for (int l = kLayers - 1; l >= 0; --l) {
    program.push_back(compute(Work::backward, l, l + 1));
    program.push_back(exchange(Exchange::allreduce, elements[l], {static_cast<int>(program.size()) - 1}, Lane::exchange));
  }
  for (const std::int64_t count : elements) layers.push_back({.forward = 1e-3, .gradient = 0.5e-3, .weights = 0.5e-3, .parameters = count});
  const perf::StepTime expected = perf::step_time(layers, [](std::int64_t count) { return ring_s(8, 4.0 * static_cast<double>(count)); });
  ASSERT_GT(expected.overlapped, expected.compute * 1.1) << "some of the communication is exposed";
  ASSERT_LT(expected.overlapped, expected.sequential() * 0.9) << "and some of it is not";
  for (const double step : run(job).steps) EXPECT_NEAR(step, expected.overlapped, 1e-7);
}

TEST(Replay, ComputingBesideACollectiveIsSlower) {
  Job job = plain_job(2, 1);
  job.stages.front() = {exchange(Exchange::allreduce, 1'000'000, {}, Lane::exchange), compute(Work::forward, 0, 10)};
  const double allreduce = ring_s(2, 4e6);
  job.cluster.device.slowdown.value = 2;
  EXPECT_NEAR(run(job).steps.front(), 10e-3 + allreduce / 2, 1e-7) << "what the collective took of the device is made up for later";
}

class PipelineReplay : public testing::TestWithParam<std::string> {};

TEST_P(PipelineReplay, HasTheBubbleOfItsFormula) {
  constexpr int kStages = 4, kMicroBatches = 8;
  Job job{.stages = {}, .settings = {}, .cluster = hosts(kStages, 0, 1e30)};
  job.settings.pipeline = kStages, job.settings.samples = job.settings.micro_batches = kMicroBatches, job.settings.schedule = GetParam();
  job.steps = 1;
  schedule::ProgramModel model;
  for (int i = 0; i < kStages; ++i) model.units.push_back({.tensors = {{.elements = 10}}, .border = 5, .forward = {}, .backward = {}});
  for (int i = 0; i < kStages; ++i) job.settings.stages.push_back({i, i + 1});
  for (int i = 0; i < kStages; ++i) {
    schedule::ProgramWriter writer(model, job.settings, i);
    writer.passes();
    job.stages.push_back(writer.take());
  }
  // Forward 1 ms; backward, or each of its halves, 1 ms.
  const auto& schedule = find(schedule::pipelines(), "schedule", GetParam());
  const bool halves = GetParam() == "zero_bubble";
  const schedule::PipelineCosts costs{1e-3, halves ? 1e-3 : 0.5e-3, halves ? 1e-3 : 0.5e-3};
  const double idle = schedule.make.idle({kStages, kMicroBatches, 1}, costs);
  const Replayed done = run(job);
  EXPECT_NEAR(done.steps.front(), kMicroBatches * costs.sum() + idle, 1e-7);
  EXPECT_NEAR(done.ranks.back().waiting + done.ranks.back().communicating, idle, 1e-7);
}
INSTANTIATE_TEST_SUITE_P(, PipelineReplay, testing::Values("gpipe", "1f1b", "zero_bubble"));

TEST(Replay, AgreesWithThePerformanceModelOnAMeshWhoseGroupsShareRails) {
  // Two hosts of four: tensor 2 inside a host, data 4 across both. Two allreduces leave each host at the same time.
  Job job = plain_job(4, 2'000'000);
  job.cluster = hosts(2, kAlpha, kBytesPerS, 4);
  job.cluster.inside.bandwidth.value = 10 * kBytesPerS;
  job.settings.tensor = 2;
  job.stages.front().insert(job.stages.front().begin() + 1,
                            exchange(Exchange::allreduce, 300'000, {}, Lane::compute, schedule::Action::Axis::tensor));
  job.stages.front()[1].algorithm = "direct", job.stages.front()[3].algorithm = "hierarchical";
  const PlainTimes times;
  const perf::CostModel model(job.cluster);
  const Replayed done = replay(job, times,
                               {.algorithm = [&](const auto& action) { return model.algorithm_of(action, job.settings); },
                                .seconds = [&](const auto& action) { return model.collective_seconds(action, job.settings); }});
  const perf::StepCost cost = model.cost(job.stages, job.settings, times);
  EXPECT_NEAR(done.steps.front(), cost.seconds, 0.02 * cost.seconds);
  EXPECT_GT(cost.split.exposed.sum(), 0.3 * cost.seconds);
  ASSERT_EQ(done.links[1].kind, "hosts' links");
  EXPECT_GT(done.links[1].most, 0.2);
}

TEST(Replay, WhatWasMeasuredGoesBeforeTheLinks) {
  Job job = plain_job(8, 1'000'000);
  job.cluster.collectives = {
      {.collective = "allreduce", .algorithm = "ring", .ranks = 8, .per_host = 1, .points = {{1e6, 0.1}, {1e7, 0.1}}}};
  const perf::CostModel model(job.cluster);
  const PlainTimes times;
  const Replayed done = replay(job, times,
                               {.algorithm = [&](const auto& action) { return model.algorithm_of(action, job.settings); },
                                .seconds = [&](const auto& action) { return model.collective_seconds(action, job.settings); }});
  EXPECT_NEAR(done.steps.front(), 4e-3 + 0.1, 1e-6);
}

TEST(Replay, StragglersCostTheExpectedMaximum) {
  Job job = plain_job(64, 1);
  job.cluster = hosts(64, 0, 1e30);
  job.timing.distribution = "gamma", job.timing.shape = 25, job.steps = 200;
  const double expected = 4e-3 * perf::expected_maximum({.distribution = "gamma", .shape = 25}, 64);
  const Replayed done = run(job);
  EXPECT_GT(expected, 5.5e-3);
  EXPECT_NEAR(mean(done.steps), expected, 0.02 * expected);
  EXPECT_NEAR(mean(done.steps) - 4e-3, done.ranks[5].waiting / 200, 0.1 * (expected - 4e-3)) << "a rank waits for the slowest";
}

TEST(Replay, ASlowWorkerHoldsUpAllAndAPauseTakesItsTime) {
  Job job = plain_job(8, 1000);
  job.timing.slow_workers = {3}, job.timing.slow_factor = 3;
  EXPECT_NEAR(run(job).steps.front(), 12e-3 + ring_s(8, 4000), 1e-6);
  job.timing = {.distribution = "constant", .pause_probability = 1, .pause_ms = 7};
  EXPECT_NEAR(run(job).steps.front(), 11e-3 + ring_s(8, 4000), 1e-6);
}

TEST(Replay, ASlowLinkOfAWorkerIsThatOfItsHost) {
  Job job = plain_job(8, 1'000'000);
  job.timing.slow_links = {5}, job.timing.slow_link_factor = 3;
  EXPECT_NEAR(run(job).steps.front(), 4e-3 + 14 * (kAlpha + 3 * 0.5e6 / kBytesPerS), 1e-7);
}

TEST(Replay, ASlowSwitchHoldsUpTheRingThatCrossesIt) {
  Job job = plain_job(8, 8'000'000);
  job.hosts_per_switch = 4;
  const double even = run(job).steps.front();
  EXPECT_NEAR(even, 4e-3 + ring_s(8, 32e6), 1e-7) << "a ring crosses each switch by one message at a time";
  job.faults.switches = {{1, 40}};  // a tenth of one host's link is left
  EXPECT_NEAR(run(job).steps.front(), 4e-3 + 14 * (kAlpha + 10 * 4e6 / kBytesPerS), 1e-6);
  job.faults.switches = {{1, 4}};
  EXPECT_NEAR(run(job).steps.front(), even, 1e-6) << "as wide as one host's link, which is all that a ring needs";
}

TEST(Replay, TheSameSeedGivesTheSameStepsAndAnotherOneOthers) {
  Job job = plain_job(16, 100'000);
  job.timing.distribution = "exponential_tail";
  const std::vector<double> steps = run(job).steps;
  EXPECT_EQ(run(job).steps, steps);
  job.seed = 2;
  EXPECT_NE(run(job).steps, steps);
}

TEST(Replay, TellsSpansOfTheFirstRanksAlone) {
  Job job = plain_job(4, 1'000'000);
  std::vector<Span> spans;
  job.traced = 2, job.steps = 2, job.trace = [&](const Span& span) { spans.push_back(span); };
  run(job);
  ASSERT_EQ(spans.size(), 12u) << "two ranks, two steps, three actions that take time";
  for (const Span& span : spans) EXPECT_LT(span.rank, 2);
  EXPECT_EQ(spans.front().name, "forward 0–1, micro-batch 0");
  EXPECT_EQ(seconds(spans.front().end - spans.front().begin), 2e-3);
}

TEST(Replay, ATraceTellsWaitingFromMoving) {
  Job job = plain_job(2, 1'000'000);
  std::vector<Span> spans;
  job.timing.slow_workers = {1}, job.timing.slow_factor = 2;
  job.traced = 2, job.steps = 1, job.trace = [&](const Span& span) { spans.push_back(span); };
  run(job);
  const auto wait = std::ranges::find(spans, "wait for others: allreduce", &Span::name);
  ASSERT_NE(wait, spans.end());
  EXPECT_EQ(wait->rank, 0);
  EXPECT_NEAR(seconds(wait->end - wait->begin), 4e-3, 1e-8);
}

TEST(Replay, RefusesWhatNeverEndsAndWhatDoesNotFit) {
  Job job{.stages = {}, .settings = {}, .cluster = hosts(2, kAlpha, kBytesPerS)};
  job.settings.pipeline = 2;
  job.stages = {{message(Exchange::receive, 10, 1, 5)}, {message(Exchange::send, 10, 0, 6)}};
  EXPECT_THAT([&] { run(job); },
              testing::ThrowsMessage<ConfigError>(testing::AllOf(testing::HasSubstr("rank 0"), testing::HasSubstr("tag 5"))));
  Job large = plain_job(4, 1);
  large.cluster = hosts(3, kAlpha, kBytesPerS);
  EXPECT_THAT([&] { run(large); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr("3 devices")));
  large = plain_job(4, 1);
  large.timing.slow_links = {4};
  EXPECT_THAT([&] { run(large); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr("timing.slow_links")));
  large = plain_job(4, 1);
  large.faults.hosts = {{4, 2}};
  EXPECT_THAT([&] { run(large); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr("no host 4")));
}

TEST(Replay, ThousandsOfRanksTakeAFewEventsEach) {
  Job job = plain_job(4000, 1'000'000);
  job.stages.front()[2].algorithm = "butterfly", job.steps = 1;
  const Replayed done = run(job);
  EXPECT_LT(done.events, 4000 * 5);
  EXPECT_EQ(done.ranks.size(), 4000u);
}

}  // namespace
}  // namespace paceline::sim
