#include "paceline/observe/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/observe/summary.h"
#include "tests/message_of.h"

namespace paceline::observe {
namespace {

using testing::HasSubstr;

VerifiedRun run_with(const std::string& name, double predicted, double measured) {
  VerifiedRun run;
  run.run = name, run.network = "mlp", run.strategy = "allreduce", run.device = "cpu", run.precision = "fp32";
  run.workers = 2, run.batch = run.samples = 32;
  run.predicted_s = predicted, run.low_s = 0.9 * predicted, run.high_s = 1.1 * predicted, run.measured_s = measured;
  return run;
}

TEST(Verification, CountsErrorsAsSharesOfWhatWasMeasured) {
  std::vector<VerifiedRun> runs;
  for (int i = 1; i <= 10; ++i) runs.push_back(run_with("run" + std::to_string(i), 1 + 0.01 * i * (i % 2 == 0 ? 1 : -1), 1));
  const Verification made = verify(runs);
  EXPECT_NEAR(made.mean, 0.055, 1e-12);
  EXPECT_NEAR(made.percentile_90, 0.09, 1e-12);
  EXPECT_NEAR(made.worst, 0.10, 1e-12);
  EXPECT_NEAR(made.bias.at(0).share, 0.005, 1e-12);  // (−1 + 2 − 3 … + 10)% / 10
  EXPECT_EQ(made.inside, 1.0);
}

TEST(Verification, TellsWhichPartIsOff) {
  VerifiedRun run = run_with("one", 0.012, 0.010);
  run.predicted_exposed_s = 0.005, run.measured_exposed_s = 0.002;
  run.predicted_bytes = 150, run.measured_bytes = 100;
  const Verification made = verify({run});
  EXPECT_NEAR(made.bias.at(0).share, 0.2, 1e-9);
  EXPECT_NEAR(made.bias.at(1).share, -0.1, 1e-9);  // computing: 7 ms against 8
  EXPECT_NEAR(made.bias.at(2).share, 0.3, 1e-9);
  EXPECT_NEAR(made.bias.at(3).share, 0.5, 1e-9);
  EXPECT_EQ(made.inside, 0);  // 10 ms lies below 10.8
}

/// Workers of a server in one process: what each waits for is not known, which is not the same as nothing.
TEST(Verification, WhatNobodyMeasuredHasNoBias) {
  VerifiedRun unwatched = run_with("served", 0.012, 0.010), watched = run_with("ring", 0.010, 0.010);
  unwatched.predicted_exposed_s = 0.006, unwatched.predicted_bytes = 100;
  watched.predicted_exposed_s = 0.004, watched.measured_exposed_s = 0.003;
  Verification made = verify({unwatched, watched});
  EXPECT_NEAR(made.bias.at(0).share, 0.1, 1e-9);
  EXPECT_NEAR(made.bias.at(1).share, -0.1, 1e-9);  // of the second alone
  EXPECT_NEAR(made.bias.at(2).share, 0.1, 1e-9);
  EXPECT_TRUE(to_json(made)["runs"][0]["measured_exposed_s"].is_null());
  EXPECT_TRUE(to_json(made)["runs"][0]["measured_bytes"].is_null());
  EXPECT_EQ(verify({unwatched}).bias.size(), 1U);
}

TEST(Verification, AsynchronousAndLossyRunsHaveARegretOfTheirOwn) {
  std::vector<VerifiedRun> runs = {run_with("ring", 1.0, 1.1), run_with("tree", 1.1, 1.0), run_with("asgd", 0.5, 0.4),
                                   run_with("topk", 0.4, 0.5)};
  runs[2].exact = runs[3].exact = false;
  const Verification made = verify(runs);
  ASSERT_EQ(made.regrets.size(), 2U);
  EXPECT_EQ(made.regrets[0].chosen, "ring");
  EXPECT_EQ(made.regrets[0].best, "tree");
  EXPECT_EQ(made.regrets[1].chosen, "topk");
  EXPECT_EQ(made.regrets[1].best, "asgd");
}

TEST(Verification, RegretIsWhatTheFastestPredictionCosts) {
  std::vector<VerifiedRun> runs = {run_with("a", 1.0, 1.2), run_with("b", 1.1, 1.0), run_with("c", 2.0, 0.9)};
  runs.back().workers = 4;  // another question
  Verification made = verify(runs);
  ASSERT_EQ(made.regrets.size(), 1U);
  EXPECT_EQ(made.regrets[0].chosen, "a");
  EXPECT_EQ(made.regrets[0].best, "b");
  EXPECT_NEAR(made.regrets[0].share, 0.2, 1e-9);
  // A minibatch of a parameter server is half of the batch: two of them take as long as one step of the others.
  runs[1].samples = 16;
  made = verify(runs);
  EXPECT_EQ(made.regrets[0].best, "a");
  EXPECT_NEAR(made.regrets[0].share, 0, 1e-9);
}

TEST(Verification, ReadsTheSummariesOfRuns) {
  const TemporaryFolder folder;
  RunStarted start;
  start.network = "mlp", start.batch = 64, start.strategy = "allreduce", start.device = "cpu", start.precision = "fp32";
  Prediction& expected = start.prediction.emplace();
  expected.step_s = 0.02, expected.low_s = 0.01, expected.high_s = 0.03, expected.exposed_s = 0.004, expected.bytes = 800;
  expected.memory_bytes = 2000;
  RunEnded end;
  end.workers = 2, end.step_s = 0.025, end.run = "runs/one", end.memory_bytes = 2500;
  end.communication = Communication{.exposed = 0.2, .bytes_per_step = 1000};
  for (const char* name : {"one", "two"}) {
    std::filesystem::create_directories(folder / name);
    Summary summary(folder / name / "summary.json");
    summary.on(start);
    summary.on(end);
    start.prediction.reset();  // the second has none
  }
  const auto found = find_summaries(folder.path());
  ASSERT_EQ(found.size(), 2U);
  const auto read = read_verified(found[0]);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->run, "runs/one");
  EXPECT_EQ(read->workers, 2);
  EXPECT_EQ(read->samples, 64);
  EXPECT_NEAR(read->error(), -0.2, 1e-9);
  EXPECT_NEAR(read->measured_exposed_s.value(), 0.005, 1e-9);
  EXPECT_EQ(read->predicted_bytes, 800);
  EXPECT_NEAR(read->memory_error(), -0.2, 1e-9);
  EXPECT_FALSE(read_verified(found[1]).has_value());
}

TEST(Verification, MemoryIsThatOfRunsWhichKnowBothSides) {
  std::vector<VerifiedRun> runs = {run_with("a", 1, 1), run_with("b", 1, 1), run_with("c", 1, 1)};
  runs[0].predicted_memory = 110, runs[0].measured_memory = 100;
  runs[1].predicted_memory = 98, runs[1].measured_memory = 100;
  runs[2].predicted_memory = 98;  // it ended after two steps
  const Verification made = verify(runs);
  EXPECT_EQ(made.with_memory, 2U);
  EXPECT_NEAR(made.memory_mean, 0.06, 1e-12);
  EXPECT_NEAR(made.memory_worst, 0.1, 1e-12);
  EXPECT_EQ(to_json(made)["memory"]["runs"], 2);
  EXPECT_FALSE(to_json(verify({runs[2]})).contains("memory"));
}

TEST(Verification, ASummaryTellsNothingFromUnknown) {
  Prediction prediction;
  prediction.step_s = 0.02;
  RunEnded end;
  end.step_s = 0.025;
  const auto measured = [&](int workers) {
    end.workers = workers;
    return nlohmann::json::parse(to_json(prediction, end).dump())["measured"];
  };
  EXPECT_TRUE(measured(4)["exposed_s"].is_null()) << "of a parameter server in one process";
  EXPECT_TRUE(measured(4)["bytes"].is_null());
  EXPECT_EQ(measured(1)["exposed_s"], 0);
}

/// What a run did not measure stands as null in its summary, and as no NaN anywhere else.
TEST(Verification, NothingIsNotANumber) {
  const TemporaryFolder folder;
  RunStarted start;
  start.network = "mlp", start.batch = 64, start.strategy = "allreduce", start.device = "cpu", start.precision = "fp32";
  start.prediction.emplace().step_s = 0.02;  // and nothing else
  RunEnded end;
  end.step_s = 0.025, end.run = "runs/one";
  Summary summary(folder / "summary.json");
  summary.on(start), summary.on(end);
  const auto read = read_verified(folder / "summary.json");
  ASSERT_TRUE(read.has_value());
  const std::string text = to_json(verify({*read})).dump();
  EXPECT_EQ(text.find("null"), std::string::npos) << text;
}

TEST(Verification, RefusesWhatIsNoSummary) {
  const TemporaryFolder folder;
  std::ofstream(folder / "summary.json") << "[1, 2";
  EXPECT_THAT(message_of<DataError>([&] { (void)read_verified(folder / "summary.json"); }), HasSubstr("summary.json"));
  std::ofstream(folder / "other.json") << R"({"prediction": {"predicted": 3}})";
  EXPECT_THAT(message_of<DataError>([&] { (void)read_verified(folder / "other.json"); }), HasSubstr("other.json"));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)find_summaries(folder / "nowhere"); }), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace paceline::observe
