// The records of a run for scripts and viewers: metrics.jsonl, summary.json, trace.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/observe/metrics.h"
#include "paceline/observe/summary.h"
#include "paceline/observe/trace.h"
#include "temp_folder.h"

namespace paceline::observe {
namespace {

using nlohmann::json;

class RecordsTest : public TempFolderTest {
 protected:
  VirtualClock clock;
};

std::vector<json> lines_of(const std::filesystem::path& file) {
  std::vector<json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST_F(RecordsTest, MetricsAreOneObjectALineAndAResumedRunContinues) {
  const auto file = folder / "metrics.jsonl";
  {
    MetricsLog log(file, clock);
    log.on(RunStarted{});
    StepDone step;
    step.step = 3;
    step.loss = NAN;
    step.rate = 0.1;
    step.bytes_sent = 4096;
    step.duration = std::chrono::milliseconds(250);
    log.on(step);
    log.on(Span{});
    log.on(EpochDone{1, 2, 0.4, 0.8, std::chrono::seconds(2), 128});
  }
  MetricsLog(file, clock).on(Evaluated{1, 4, 0.6, 0.7});
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["event"], "step");
  EXPECT_EQ(lines[0]["step"], 3);
  EXPECT_TRUE(lines[0]["loss"].is_null());
  EXPECT_EQ(lines[0]["rate"], 0.1);
  EXPECT_EQ(lines[0]["bytes_sent"], 4096.0);
  EXPECT_EQ(lines[0]["seconds"], 0.25);
  EXPECT_EQ(lines[1],
            (json{{"event", "epoch"}, {"epoch", 1}, {"train_loss", 0.4}, {"train_accuracy", 0.8}, {"samples", 128}, {"seconds", 2.0}}));
  EXPECT_EQ(
      lines[2],
      (json{
          {"event", "evaluation"}, {"step", 4}, {"epoch", 1}, {"test_loss", 0.6}, {"test_accuracy", 0.7}, {"training_seconds", nullptr}}));
}

TEST_F(RecordsTest, AResumedRunHasEveryLineOnce) {
  const auto file = folder / "metrics.jsonl";
  const auto step = [](std::int64_t number) {
    StepDone done;
    done.step = number;
    return done;
  };
  const auto found = [&] {
    std::vector<std::string> rows;
    for (const json& line : lines_of(file)) rows.push_back(line["event"].get<std::string>() + line.value("step", json("")).dump());
    return rows;
  };
  {
    MetricsLog log(file, clock);
    log.on(RunStarted{});
    for (int i : {1, 2}) log.on(step(i));
    log.on(EpochDone{1, 3, 0.4, 0.8, std::chrono::seconds(2), 128});
    log.on(CheckpointWritten{2, "c", 1, std::chrono::seconds(1)});
    log.on(Evaluated{1, 2, 0.6, 0.7});
    log.on(EvaluatedView{1, 2, "async", 0.6, 0.7});
    for (int i : {3, 4}) log.on(step(i));
    log.on(EpochDone{2, 3, 0.3, 0.8, std::chrono::seconds(2), 128});
    log.on(step(5));
  }
  std::ofstream(file, std::ios::app) << R"({"event":"step","st)";  // and a kill
  const std::vector<std::string> before = {"step1", "step2", "epoch\"\"", "checkpoint2", "evaluation2", "view2"};
  MetricsLog log(file, clock);
  RunStarted again;
  again.first_step = 2;
  log.on(again);
  EXPECT_EQ(found(), before);
  log.on(Evaluated{1, 2, 0.5, 0.7});  // stood before it, and makes it again
  EXPECT_THAT(found(), testing::UnorderedElementsAreArray(before));
  EXPECT_EQ(lines_of(file).back()["test_loss"], 0.5);
  log.on(step(3));
  log.on(EpochDone{2, 3, 0.3, 0.8, std::chrono::seconds(2), 128});
  EXPECT_EQ(lines_of(file).size(), before.size() + 2);

  again.first_step = 0;  // there was no checkpoint to go on from
  MetricsLog(file, clock).on(again);
  EXPECT_TRUE(found().empty());
}

TEST_F(RecordsTest, StepsReachTheDiskWithinASecond) {
  const auto file = folder / "metrics.jsonl";
  MetricsLog log(file, clock);
  log.on(StepDone{});
  EXPECT_EQ(lines_of(file).size(), 0u);
  clock.advance(std::chrono::seconds(1));
  log.on(StepDone{});
  EXPECT_EQ(lines_of(file).size(), 2u);
}

TEST_F(RecordsTest, AFullDiskIsAnErrorOfTheFile) {
  MetricsLog log("/dev/full", clock);
  EXPECT_THROW(log.on(EpochDone{}), DataError);
  EXPECT_THROW(MetricsLog("/no/such/folder/x", clock), ConfigError);
}

TEST_F(RecordsTest, TheSummaryHoldsTheFiguresAndWhatWasTrained) {
  Summary summary(folder / "summary.json");
  RunStarted start;
  start.network = "lenet";
  start.batch = 64;
  summary.on(start);
  RunEnded end;
  end.workers = 4;
  end.steps = 10;
  end.train_loss = 0.5;
  end.state_hash = "00ff", end.parameters_hash = "0aa0";
  end.run = "runs/\xff";  // a folder may be called anything; JSON is UTF-8
  summary.on(end);
  const json read = json::parse(read_file(folder / "summary.json"));
  for (const char* key : {"workers", "steps", "epochs", "samples", "seconds", "samples_per_s", "train_loss", "test_loss", "test_accuracy",
                          "state_hash", "parameters_hash", "run"})
    EXPECT_TRUE(read.contains(key)) << key;
  EXPECT_EQ(read["workers"], 4);
  EXPECT_TRUE(read["test_loss"].is_null());
  EXPECT_EQ(read["state_hash"], "00ff");
  EXPECT_EQ(read["parameters_hash"], "0aa0");
  EXPECT_EQ(read["network"], "lenet");
  EXPECT_FALSE(read.contains("stopped"));
  end.stopped = "SIGTERM";
  EXPECT_EQ(to_json(end)["stopped"], "SIGTERM");
}

Span span(int rank, std::string lane, std::string name, std::int64_t begin, std::int64_t end) {
  return {std::move(name), std::move(lane), rank, Nanoseconds(begin), Nanoseconds(end)};
}

TEST_F(RecordsTest, TheTraceIsWholeAfterEveryFlush) {
  Bus bus;
  const auto file = folder / "trace.json";
  Trace trace(file, bus);
  EXPECT_TRUE(bus.wants_spans());
  EXPECT_TRUE(json::parse(read_file(file))["traceEvents"].empty());

  trace.on(span(0, "compute", "forward \"1\"", 1'000'001, 1'002'500));
  trace.on(EpochDone{});
  EXPECT_EQ(json::parse(read_file(file))["traceEvents"].size(), 3u);  // names of the process and of the lane, and the span
  trace.on(span(1, "comm", "allreduce", 2'000'000, 3'000'000));
  trace.on(span(0, "comm", "allreduce", 2'000'000, 3'000'000));
  trace.on(span(0, "compute", "backward", 4'000'000, 5'000'000));
  trace.on(EpochDone{});

  const json events = json::parse(read_file(file))["traceEvents"];
  ASSERT_EQ(events.size(), 3u + 3 + 2 + 1);
  EXPECT_EQ(events[0], (json{{"ph", "M"}, {"pid", 0}, {"name", "process_name"}, {"args", {{"name", "rank 0"}}}}));
  EXPECT_EQ(events[1], (json{{"ph", "M"}, {"pid", 0}, {"tid", 0}, {"name", "thread_name"}, {"args", {{"name", "compute"}}}}));
  EXPECT_EQ(events[2], (json{{"ph", "X"}, {"pid", 0}, {"tid", 0}, {"name", "forward \"1\""}, {"ts", 1000.001}, {"dur", 2.499}}));
  EXPECT_EQ(events[8]["tid"], 0);  // compute again, not a new lane
  EXPECT_EQ(events[7]["tid"], 1);
  EXPECT_EQ(events[5]["pid"], 1);
}

TEST_F(RecordsTest, ATraceIsWholeAfterADiskThatWasFull) {
  Bus bus;
  const auto file = folder / "trace.json";
  {
    Trace trace(file, bus);
    trace.on(span(0, "compute", "forward", 1000, 2000));
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit full{std::filesystem::file_size(file) + 10, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
    EXPECT_THROW(trace.on(EpochDone{}), DataError);
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    trace.on(span(0, "compute", "backward", 2000, 3000));
  }
  EXPECT_EQ(json::parse(read_file(file))["traceEvents"].size(), 4u);  // two names and two spans
}

TEST_F(RecordsTest, ManySpansAreWrittenAsTheyCome) {
  Bus bus;
  const auto file = folder / "trace.json";
  {
    Trace trace(file, bus);
    for (int i = 0; i < 10000; ++i) trace.on(span(0, "compute", "step", i * 1000, i * 1000 + 500));
    const auto early = json::parse(read_file(file))["traceEvents"].size();  // nothing has asked for a flush
    EXPECT_GT(early, 5000u);
    EXPECT_LT(early, 10002u);
  }
  EXPECT_EQ(json::parse(read_file(file))["traceEvents"].size(), 10002u);
  EXPECT_THROW(Trace("/no/such/folder/x", bus), ConfigError);
}

}  // namespace
}  // namespace paceline::observe
