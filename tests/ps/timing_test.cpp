// Durations: their distributions, that a draw is a pure function of its place, and recordings.
#include "paceline/ps/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/ps/timing_trace.h"

namespace paceline::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kDraws = 10000;

double milliseconds(Nanoseconds duration) { return seconds(duration) * 1e3; }

double compute_ms(const Timing& timing, int worker, std::int64_t iteration) {
  const Iteration drawn = timing.draw(worker, iteration, 0);
  return milliseconds(drawn.forward + drawn.backward);
}

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments(const TimingConfig& config, int workers = 1, int worker = 0) {
  const auto timing = make_timing(config, workers, 42);
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double ms = compute_ms(*timing, worker, i);
    sum += ms;
    squares += ms * ms;
  }
  const double mean = sum / kDraws;
  return {mean, squares / kDraws - mean * mean};
}

std::vector<std::int64_t> numbers(const Iteration& iteration) {
  return {iteration.pull.count(), iteration.forward.count(), iteration.report.count(), iteration.backward.count(), iteration.push.count()};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& problem) {
    return std::string("ConfigError: ") + problem.what();
  } catch (const DataError& problem) {
    return std::string("DataError: ") + problem.what();
  }
  return "accepted";
}

TEST(Timing, GammaHasItsMeanAndVariance) {
  for (const double shape : {0.5, 1.0, 4.0, 100.0}) {
    const Moments drawn = moments({.compute_ms = 10, .shape = shape});
    const double variance = 100 / shape;
    // Standard errors: of the mean σ/√n; of the variance σ²·√((kurtosis − 1)/n), and a gamma's kurtosis is 3 + 6/shape.
    EXPECT_NEAR(drawn.mean, 10, 4 * std::sqrt(variance / kDraws)) << shape;
    EXPECT_NEAR(drawn.variance, variance, 4 * variance * std::sqrt((2 + 6 / shape) / kDraws)) << shape;
  }
}

TEST(Timing, GammaOfShapeOneIsExponential) {
  const auto timing = make_timing({.compute_ms = 10, .shape = 1}, 1, 42);
  for (const double bound : {1.0, 5.0, 10.0, 30.0}) {
    int below = 0;
    for (int i = 0; i < kDraws; ++i) below += compute_ms(*timing, 0, i) < bound;
    const double expected = 1 - std::exp(-bound / 10);
    EXPECT_NEAR(below, kDraws * expected, 4 * std::sqrt(kDraws * expected * (1 - expected))) << bound;
  }
}

TEST(Timing, ExponentialTailKeepsTheMeanAndStartsAtItsConstant) {
  const TimingConfig config{.distribution = "exponential_tail", .compute_ms = 10, .tail = 0.4};
  const Moments drawn = moments(config);
  EXPECT_NEAR(drawn.mean, 10, 4 * 4 / std::sqrt(kDraws));
  EXPECT_NEAR(drawn.variance, 16, 4 * 16 * std::sqrt(8.0 / kDraws));
  const auto timing = make_timing(config, 1, 42);
  double least = 1e9;
  for (int i = 0; i < kDraws; ++i) least = std::min(least, compute_ms(*timing, 0, i));
  EXPECT_GE(least, 6 - 1e-6);
  EXPECT_LT(least, 6.01);
}

TEST(Timing, AnIterationIsMadeOfItsParts) {
  const auto timing =
      make_timing({.distribution = "constant", .compute_ms = 10, .forward_share = 0.3, .latency_ms = 0.5, .bandwidth_mb_per_s = 100}, 2, 1);
  const Iteration drawn = timing->draw(1, 5, 2'000'000);  // 20 ms at 100 MB/s
  EXPECT_EQ(numbers(drawn), (std::vector<std::int64_t>{20'500'000, 3'000'000, 500'000, 7'000'000, 20'500'000}));
}

TEST(Timing, ADrawDependsOnNothingButItsPlace) {
  const auto timing = make_timing({.pause_probability = 0.1}, 4, 7), again = make_timing({.pause_probability = 0.1}, 4, 7);
  std::vector<double> forwards, backwards;
  for (int i = 0; i < 400; ++i) forwards.push_back(compute_ms(*timing, i % 4, i / 4));
  for (int i = 399; i >= 0; --i) backwards.insert(backwards.begin(), compute_ms(*again, i % 4, i / 4));
  EXPECT_EQ(forwards, backwards);
  const auto other = make_timing({}, 4, 8);
  EXPECT_NE(compute_ms(*timing, 0, 0), compute_ms(*other, 0, 0)) << "another seed";
  EXPECT_NE(compute_ms(*timing, 0, 0), compute_ms(*timing, 1, 0)) << "another worker";
  EXPECT_NE(compute_ms(*timing, 0, 0), compute_ms(*timing, 0, 1)) << "another iteration";
}

TEST(Timing, SlowWorkersAndSpreadMultiplyTheSameDraw) {
  const auto even = make_timing({}, 5, 3);
  const auto slow = make_timing({.slow_workers = {1, 3}, .slow_factor = 4}, 5, 3);
  const auto spread = make_timing({.spread = 2}, 5, 3);
  for (int worker = 0; worker < 5; ++worker) {
    const double base = compute_ms(*even, worker, 9);
    EXPECT_NEAR(compute_ms(*slow, worker, 9), base * (worker == 1 || worker == 3 ? 4 : 1), 1e-4) << worker;
    EXPECT_NEAR(compute_ms(*spread, worker, 9), base * (1 + 0.5 * worker), 1e-4) << worker;
  }
  EXPECT_NEAR(compute_ms(*slow, 6, 0), compute_ms(*even, 6, 0) * 4, 1e-4) << "a newcomer is as fast as its number modulo the workers";
  EXPECT_NO_THROW(compute_ms(*make_timing({.spread = 2}, 1, 3), 0, 0));
}

TEST(Timing, MessagesHaveADistributionOfTheirOwn) {
  struct Case {
    const char* distribution;
    double variance;  // of a message of mean 1 ms
  };
  const auto even = make_timing({}, 1, 42);
  for (const auto& [distribution, variance] : {Case{"gamma", 1.0 / 4}, Case{"exponential_tail", 0.16}}) {
    const auto timing = make_timing(
        {.latency_ms = 0.5, .bandwidth_mb_per_s = 1000, .network_distribution = distribution, .network_shape = 4, .network_tail = 0.4}, 1,
        42);
    double pulls = 0, pushes = 0, reports = 0, squares = 0, products = 0;
    for (int i = 0; i < kDraws; ++i) {
      const Iteration drawn = timing->draw(0, i, 500'000);
      const double pull = milliseconds(drawn.pull), push = milliseconds(drawn.push);
      pulls += pull, pushes += push, reports += milliseconds(drawn.report), squares += pull * pull, products += pull * push;
      EXPECT_EQ(drawn.forward + drawn.backward, even->draw(0, i, 0).forward + even->draw(0, i, 0).backward) << "computing is as it was";
    }
    const double error = 4 * std::sqrt(variance / kDraws);
    EXPECT_NEAR(pulls / kDraws, 1, error) << distribution;
    EXPECT_NEAR(pushes / kDraws, 1, error) << distribution;
    EXPECT_NEAR(reports / kDraws, 0.5, error / 2) << distribution;
    EXPECT_NEAR(squares / kDraws - std::pow(pulls / kDraws, 2), variance, 4 * variance * std::sqrt(8.0 / kDraws)) << distribution;
    EXPECT_NEAR(products / kDraws, 1, 4 * 3 * std::sqrt(variance / kDraws)) << distribution << ": each message draws for itself";
  }
}

TEST(Timing, SlowLinksMultiplyTheirMessagesAlone) {
  const auto even = make_timing({}, 3, 3), slow = make_timing({.slow_links = {1}, .slow_link_factor = 4}, 3, 3);
  for (int worker = 0; worker < 5; ++worker) {
    const Iteration base = even->draw(worker, 9, 1000), drawn = slow->draw(worker, 9, 1000);
    const int factor = worker % 3 == 1 ? 4 : 1;
    EXPECT_EQ(numbers(drawn), (std::vector<std::int64_t>{factor * base.pull.count(), base.forward.count(), factor * base.report.count(),
                                                         base.backward.count(), factor * base.push.count()}));
  }
}

TEST(Timing, PausesComeAsOftenAsAskedAndLastAsLong) {
  const auto timing = make_timing({.distribution = "constant", .compute_ms = 10, .pause_probability = 0.05, .pause_ms = 500}, 1, 42);
  int pauses = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double ms = compute_ms(*timing, 0, i);
    EXPECT_TRUE(ms == 10 || ms == 510) << ms;
    pauses += ms > 100;
  }
  EXPECT_NEAR(pauses, 500, 4 * std::sqrt(kDraws * 0.05 * 0.95));
}

TEST(Timing, ExponentialPausesHaveTheirMeanAndVaryAsMuch) {
  const TimingConfig config{
      .distribution = "constant", .compute_ms = 10, .pause_probability = 0.5, .pause_ms = 40, .pause_distribution = "exponential"};
  const auto timing = make_timing(config, 1, 42);
  double pauses = 0, sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double pause = compute_ms(*timing, 0, i) - 10;
    EXPECT_NEAR(milliseconds(straggle(config, 1, 42, 0, i, std::chrono::milliseconds(10))), pause, 1e-4);
    if (pause > 0) ++pauses, sum += pause, squares += pause * pause;
  }
  EXPECT_NEAR(pauses, kDraws * 0.5, 4 * std::sqrt(kDraws * 0.25));
  EXPECT_NEAR(sum / pauses, 40, 4 * 40 / std::sqrt(pauses));
  EXPECT_NEAR(squares / pauses - std::pow(sum / pauses, 2), 1600, 4 * 1600 * std::sqrt(8 / pauses));
}

TEST(Timing, WithoutTransfersOnlyComputingTakesTime) {
  const auto with = make_timing({}, 2, 3), without = make_timing({.slow_links = {1}, .slow_link_factor = 9, .transfers = false}, 2, 3);
  for (int worker = 0; worker < 2; ++worker) {
    const Iteration base = with->draw(worker, 4, 1000), drawn = without->draw(worker, 4, 1000);
    EXPECT_EQ(numbers(drawn), (std::vector<std::int64_t>{0, base.forward.count(), 0, base.backward.count(), 0}));
  }
}

TEST(Timing, StraggleAddsWhatTheTimingWouldHave) {
  const TimingConfig config{
      .distribution = "constant", .compute_ms = 10, .slow_workers = {2}, .slow_factor = 3, .spread = 1, .pause_probability = 0.2};
  const auto timing = make_timing(config, 3, 5);
  for (int worker = 0; worker < 3; ++worker)
    for (int iteration = 0; iteration < 50; ++iteration) {
      const Nanoseconds added = straggle(config, 3, 5, worker, iteration, std::chrono::milliseconds(10));
      EXPECT_NEAR(10 + milliseconds(added), compute_ms(*timing, worker, iteration), 1e-4);
    }
  EXPECT_EQ(straggle({}, 3, 5, 2, 0, std::chrono::seconds(1)), Nanoseconds(0));
}

TEST(Timing, RefusesWhatCannotBe) {
  const auto refused = [](const TimingConfig& config, int workers = 4) { return refusal([&] { make_timing(config, workers, 1); }); };
  EXPECT_EQ(refused({}), "accepted");
  EXPECT_THAT(refused({.distribution = "gama"}), AllOf(HasSubstr("ConfigError: timing.distribution"), HasSubstr("did you mean 'gamma'")));
  EXPECT_THAT(refused({.compute_ms = -1}), HasSubstr("ConfigError: timing.compute_ms must be at least 0"));
  EXPECT_THAT(refused({.shape = std::nan("")}), HasSubstr("ConfigError: timing.shape"));
  EXPECT_THAT(refused({.bandwidth_mb_per_s = 0}), HasSubstr("ConfigError: timing.bandwidth_mb_per_s must be above 0"));
  EXPECT_THAT(refused({.slow_workers = {4}}), HasSubstr("no worker 4"));
  EXPECT_THAT(refused({.slow_workers = {-1}}), HasSubstr("timing.slow_workers"));
  EXPECT_THAT(refused({.slow_links = {4}}), HasSubstr("timing.slow_links: there is no worker 4"));
  EXPECT_THAT(refused({.network_distribution = "trace"}), HasSubstr("timing.network_distribution"));
  EXPECT_THAT(refused({.distribution = "trace", .network_distribution = "gamma", .trace = "x"}), HasSubstr("distribution=trace"));
  EXPECT_THAT(refused({.distribution = "durations", .transfers = false, .trace = "x"}), HasSubstr("transfers"));
  EXPECT_THAT(refused({.pause_distribution = "gamma"}), HasSubstr("timing.pause_distribution"));
  EXPECT_THAT(refused({.slow_factor = 0.5}), HasSubstr("timing.slow_factor"));
  EXPECT_THAT(refused({.pause_probability = 1.5}), HasSubstr("timing.pause_probability"));
  EXPECT_THAT(refused({}, 0), HasSubstr("at least 1 worker"));
  EXPECT_THAT(refused({.distribution = "trace"}), HasSubstr("set timing.trace"));
  EXPECT_THAT(refused({.distribution = "trace", .trace = "/nonexistent/trace.csv"}), HasSubstr("ConfigError: timing.trace: there is no"));
  EXPECT_THAT(refused({.distribution = "trace", .trace = "x", .spread = 1}), HasSubstr("distribution=trace"));
}

TEST(Timing, TheLongestSettingsStillMakeADuration) {
  const auto timing =
      make_timing({.compute_ms = 1e300, .shape = 0.01, .bandwidth_mb_per_s = 1e-300, .slow_workers = {0}, .slow_factor = 1e300}, 1, 1);
  const Iteration drawn = timing->draw(0, 0, 1 << 20);
  EXPECT_GT(drawn.forward + drawn.backward, Nanoseconds(0));
  EXPECT_GT(drawn.pull, Nanoseconds(0));
}

class TimingTrace : public testing::Test {
 protected:
  std::string written(const std::string& text, int workers = 2) {
    write_atomically(file, text);
    return refusal([&] { replay(workers); });
  }
  std::unique_ptr<Timing> replay(int workers) const { return make_timing({.distribution = "trace", .trace = file.string()}, workers, 0); }

  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "trace.csv";
  const std::string head =
      "# paceline timing of 2 workers\n"
      "worker,iteration,pull_ns,forward_ns,report_ns,backward_ns,push_ns\n";
};

TEST_F(TimingTrace, WhatIsRecordedIsReplayedAndThenFromTheStart) {
  const auto original = make_timing({}, 3, 1);
  {
    TimingRecorder recorder(file, 3);
    for (int iteration = 0; iteration < 5; ++iteration)
      for (int worker = 2; worker >= 0; --worker)
        if (worker != 1 || iteration < 3) recorder.record(worker, 10 + iteration, original->draw(worker, iteration, 1000), {});
  }
  const auto trace = replay(3);
  for (int worker = 0; worker < 3; ++worker)
    for (int iteration = 0; iteration < 12; ++iteration)
      EXPECT_EQ(numbers(trace->draw(worker, iteration, 77)), numbers(original->draw(worker, iteration % (worker == 1 ? 3 : 5), 1000)));
  EXPECT_EQ(numbers(trace->draw(4, 0, 0)), numbers(trace->draw(1, 0, 0))) << "a newcomer";
}

TEST_F(TimingTrace, AnyThreadMayRecord) {
  constexpr int kThreads = 4, kIterations = 500;
  {
    TimingRecorder recorder(file, kThreads);
    std::vector<std::jthread> threads;
    for (int worker = 0; worker < kThreads; ++worker)
      threads.emplace_back([&recorder, worker] {
        for (int i = 0; i < kIterations; ++i) recorder.record(worker, i, {.pull = Nanoseconds(i), .push = Nanoseconds(worker)}, {});
      });
  }
  const auto trace = replay(kThreads);
  for (int worker = 0; worker < kThreads; ++worker) {
    EXPECT_EQ(trace->draw(worker, kIterations - 1, 0).pull, Nanoseconds(kIterations - 1));
    EXPECT_EQ(trace->draw(worker, kIterations, 0).push, Nanoseconds(worker));
  }
}

TEST_F(TimingTrace, DamageIsNamedWithItsLine) {
  EXPECT_EQ(written(head + "0,0,1,2,3,4,5\n1,0,1,2,3,4,5\n"), "accepted");
  EXPECT_THAT(written(""), HasSubstr("line 1: cut off"));
  EXPECT_THAT(written("loss,accuracy\n"), HasSubstr("line 1: expected '# paceline timing of N workers'"));
  EXPECT_THAT(written("# paceline timing of  workers\n"), HasSubstr("line 1"));
  EXPECT_THAT(written("# paceline timing of 0 workers\n"), HasSubstr("line 1"));
  EXPECT_THAT(written("# paceline timing of 2 workers\nworker,iteration\n"), HasSubstr("line 2: expected the columns"));
  EXPECT_THAT(written(head + "0,0,1,2,3,4\n"), HasSubstr("line 3: expected 7 whole numbers"));
  EXPECT_THAT(written(head + "0,0,1,2,3,4,5,6\n"), HasSubstr("column 7"));
  EXPECT_THAT(written(head + "0,0,1,-2,3,4,5\n"), HasSubstr("column 4"));
  EXPECT_THAT(written(head + "0,0,1,2.5,3,4,5\n"), HasSubstr("column 4"));
  EXPECT_THAT(written(head + "0,0,1,2,3,4,9000000000000000000\n"), HasSubstr("eleven days"));
  EXPECT_THAT(written(head + "0,0,1,2,3,4,99999999999999999999999\n"), HasSubstr("column 7"));
  EXPECT_THAT(written(head + "2,0,1,2,3,4,5\n"), HasSubstr("line 3: names worker 2"));
  EXPECT_THAT(written(head + "0,0,1,2,3,4,5\n0,2,1,2,3,4,5\n"), HasSubstr("line 4: iteration 2 of worker 0 does not follow"));
  EXPECT_THAT(written(head + "0,0,1,2,3,4,5\n1,0,1,2,3,4,5"), HasSubstr("line 4: cut off"));
  const std::string lonely = written(head + "0,0,1,2,3,4,5\n");
  EXPECT_THAT(lonely, AllOf(HasSubstr("DataError"), HasSubstr(file.string()), HasSubstr("line 3"), HasSubstr("worker 1")));
  EXPECT_THAT(written(head + "0,0,1,2,3,4,5\n1,0,1,2,3,4,5\n", 3), HasSubstr("ConfigError: timing.trace"));
}

TEST_F(TimingTrace, TheOrderOfARunIsRecordedToo) {
  {
    TimingRecorder recorder(file, 2);
    recorder.record(1, 0, {}, {.minibatch = 4, .pulled = 1, .reported = 3, .pushed = 4});
    recorder.record(0, 0, {}, {.minibatch = 5, .pulled = 2, .reported = 5});
  }
  const auto visits = recorded_visits({.distribution = "trace", .trace = file.string()}, 2);
  ASSERT_EQ(visits.size(), 2u);
  EXPECT_EQ(visits[1][0].minibatch, 4);
  EXPECT_EQ(visits[1][0].pushed, 4);
  EXPECT_EQ(visits[0][0].reported, 5);
  EXPECT_EQ(visits[0][0].pushed, 0);
}

TEST_F(TimingTrace, AnOrderThatNoRunHasIsRefused) {
  std::string ordered = head;
  ordered.insert(ordered.size() - 1, ",minibatch,pull,report,push");
  const auto order_of = [&](const std::string& text) {
    write_atomically(file, text);
    return refusal([&] { recorded_visits({.distribution = "trace", .trace = file.string()}, 2); });
  };
  EXPECT_EQ(order_of(ordered + "0,0,1,2,3,4,5,0,1,3,5\n1,0,1,2,3,4,5,1,2,4,6\n"), "accepted");
  EXPECT_THAT(order_of(head + "0,0,1,2,3,4,5\n1,0,1,2,3,4,5\n"), HasSubstr("ConfigError: timing.trace"));
  EXPECT_THAT(order_of(ordered + "0,0,1,2,3,4,5,0,1,3,5\n1,0,1,2,3,4,5,0,2,4,6\n"), HasSubstr("duplicated"));
  EXPECT_THAT(order_of(ordered + "0,0,1,2,3,4,5,0,1,3,5\n1,0,1,2,3,4,5,1,2,4,9\n"), HasSubstr("missing"));
  EXPECT_THAT(order_of(ordered + "0,0,1,2,3,4,5,0,3,1,5\n1,0,1,2,3,4,5,1,2,4,6\n"), HasSubstr("in this order"));
  EXPECT_THAT(order_of(ordered + "0,0,1,2,3,4,5\n"), HasSubstr("expected 11 whole numbers"));
}

TEST_F(TimingTrace, AFolderThatIsNotThereIsRefused) {
  EXPECT_THAT(refusal([&] { TimingRecorder(file.parent_path() / "nowhere" / "trace.csv", 2); }), HasSubstr("ConfigError: cannot record"));
}

}  // namespace
}  // namespace paceline::ps
