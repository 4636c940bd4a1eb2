// Fits to tables whose steps a known cluster made, and tables that are none.
#include "paceline/perf/calibrate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "paceline/base/error.h"
#include "paceline/perf/table_model.h"
#include "plan_programs.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

using testing::HasSubstr;

constexpr const char* kNames =
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,pipeline "
    "parallelism,iteration time (ms)\n";

/// A host of eight GPUs whose speeds nobody gave the fit.
Cluster truth() {
  Cluster cluster = find_cluster("v100");
  cluster.hosts = 1;
  Device& device = cluster.device;
  device.fp16.flops.value = 200e12, device.fp16.products.points = {{1e6, 0.001}, {1e9, 0.1}, {1e11, 0.8}, {1e13, 1}};
  device.launch.value = 40e-6, device.memory_bandwidth.value = 1.4e12, device.update_bandwidth.value = 1e12;
  cluster.inside.bandwidth.value = 200e9, cluster.inside.latency.value = 12e-6;
  cluster.between = cluster.inside;
  return cluster;
}

std::vector<MeasuredStep> steps() {
  std::vector<MeasuredStep> steps;
  for (const std::int64_t hidden : {512, 1024})
    for (const std::int64_t tensor : {1, 2, 4})
      for (const std::int64_t data : {1, 2})
        for (const std::int64_t pipeline : {1, 2})
          for (const std::int64_t micro : {1, 2, 4}) {
            if (tensor * data * pipeline > 8) continue;  // a host's
            MeasuredStep step{
                .line = std::ssize(steps) + 2, .gpus = tensor * data * pipeline, .global_batch = 8 * data, .micro_batch = micro};
            step.hidden = hidden, step.heads = 8, step.layers = 4, step.sequence = 512, step.vocabulary = 8192;
            step.tensor = tensor, step.data = data, step.pipeline = pipeline, step.seconds = 1;
            steps.push_back(step);
          }
  std::vector<std::size_t> rows(steps.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const std::vector<double> seconds = TableModel(steps, plain_programs).predict(truth(), {.step_s = 1e-3, .vocabulary = 1.5}, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) steps[i].seconds = seconds[i];
  return steps;
}

TableQuestion question() {
  TableQuestion question;
  question.steps = steps(), question.fraction = 0.5, question.cluster = find_cluster("v100"), question.allreduce = plain_programs;
  return question;
}

TEST(Calibrate, PredictsRowsThatItDidNotSee) {
  const TableVerification found = verify_table(question());
  EXPECT_EQ(found.fitted.rows, 33u);
  EXPECT_EQ(found.others.rows, 33u);
  EXPECT_LT(found.others.mean, 0.03);  // its curve of efficiency is another one
  EXPECT_LT(found.others.mean, found.others.worst);
  EXPECT_LE(found.regret.top3_mean, found.regret.mean);
  EXPECT_LT(found.regret.mean, 0.05);
  for (const CalibratedValue& value : found.calibration.values)
    if (value.name == "launch of an operation") {
      EXPECT_NEAR(value.value, 40e-6, 8e-6);
    }
}

TEST(Calibrate, AnotherDrawSeesOtherRows) {
  TableQuestion first = question(), second = first;
  second.seed = 2;
  const TableVerification a = verify_table(first), b = verify_table(second);
  EXPECT_NE(a.seen, b.seen);
  EXPECT_EQ(std::ranges::count(a.seen, true), 33);
}

TEST(Calibrate, WhatItFoundIsAClusterFile) {
  const Calibration found = verify_table(question()).calibration;
  const Cluster read = read_cluster(to_toml(found.cluster), "fitted.toml");
  EXPECT_EQ(read.device.fp16.flops, found.cluster.device.fp16.flops);
  EXPECT_EQ(read.inside.bandwidth.source, Source::measured);
}

TEST(Calibrate, RefusesTooFewRows) {
  TableQuestion few = question();
  few.fraction = 0.1;
  EXPECT_THAT(message_of<ConfigError>([&] { verify_table(few); }), testing::AllOf(HasSubstr("--calibrate"), HasSubstr("0.1")));
  few.fraction = 1;
  EXPECT_THROW(verify_table(few), ConfigError);
}

TEST(StepTable, ReadsNamesInAnyOrder) {
  const auto rows = read_step_table(
      "vocabulary,iteration time (ms),tensor parallelism,# GPUs,global batch,micro batch,hidden size,attention "
      "heads,# layers,sequence length,data parallelism,pipeline parallelism\n1000,250.5,2,4,16,4,64,4,6,128,2,1\n",
      "t.csv");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].vocabulary, 1000);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 0.2505);
  EXPECT_EQ(rows[0].micro_batches(), 2);
  EXPECT_EQ(rows[0].line, 2);
}

TEST(StepTable, RefusesWhatCannotBe) {
  const auto message = [](const std::string& row) { return message_of<DataError>([&] { read_step_table(kNames + row, "t.csv"); }); };
  EXPECT_THAT(message("8,16,4,64,4,6,128,2,2,1,10\n"), testing::AllOf(HasSubstr("t.csv"), HasSubstr("line 2"), HasSubstr("8 GPUs")));
  EXPECT_THAT(message("4,16,4,64,4,6,128,2,2,1,-3\n"), HasSubstr("iteration time"));
  EXPECT_THAT(message("4,16,4,64,4,6,128,2,2,1\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("4,16,3,64,4,6,128,2,2,1,10\n"), HasSubstr("micro-batches of 3"));
  EXPECT_THAT(message("4,16,4,64,x,6,128,2,2,1,10\n"), HasSubstr("attention heads"));
  EXPECT_THAT(message(""), HasSubstr("t.csv"));
  EXPECT_THAT(message_of<DataError>([] { read_step_table("a,b\n1,2\n", "t.csv"); }), HasSubstr("# GPUs"));
}

}  // namespace
}  // namespace paceline::perf
