// The study as a whole: its points, and what it says of the slides' conclusions.
#include "paceline/perf/ccgrid2019.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "paceline/base/error.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

using testing::HasSubstr;

const Study& slides() {
  static const Study study = run_ccgrid2019({.cluster = find_cluster("skylake")});
  return study;
}

TEST(Ccgrid2019, SweepsEverythingOnBothTopologiesWithBothMethods) {
  std::set<std::string> combinations;
  for (const StepRow& row : slides().steps)
    combinations.insert(row.sweep + row.network + std::string(name_of(row.topology)) + std::string(name_of(row.method)));
  EXPECT_EQ(combinations.size(), 5u * 4 * 2 * 2);
  EXPECT_EQ(slides().intensities.size(), 4u * 2 * 2 * 3);
  EXPECT_DOUBLE_EQ(slides().ridge, 70);
}

TEST(Ccgrid2019, EverySweepPassesThroughTheSamePoint) {
  for (const std::string& network : slides().options.networks)
    for (const Method method : kMethods) {
      std::set<std::string_view> found;
      std::set<double> times;
      for (const StepRow& row : slides().steps)
        if (row.network == network && row.method == method && row.topology == Topology::star && row.batch == 60 && row.processes == 1000 &&
            row.flops_per_s == 8960e9 && row.memory_bytes_per_s == 128e9 && row.link_bytes_per_s == 25e9)
          found.insert(row.sweep), times.insert(row.time.overlapped);
      EXPECT_EQ(found.size(), std::size(kSweeps)) << network;
      EXPECT_EQ(times.size(), 1u) << network;
    }
}

TEST(Ccgrid2019, MoreOfAnythingNeverSlowsAStepAndMoreProcessesNeverSpeedOneUp) {
  for (const StepRow& a : slides().steps)
    for (const StepRow& b : slides().steps) {
      if (a.sweep != b.sweep || a.network != b.network || a.topology != b.topology || a.method != b.method || !(a.swept() < b.swept()))
        continue;
      // On a mesh, ⌈log₂⌉ of both sides may fall where their product rises.
      if (a.sweep == "processes" && a.topology == Topology::mesh) continue;
      const bool grows = a.sweep == "batch" || a.sweep == "processes";
      const double small = grows ? a.time.overlapped : b.time.overlapped, large = grows ? b.time.overlapped : a.time.overlapped;
      EXPECT_LE(small, large * (1 + 1e-12)) << a.sweep << " " << a.network << " " << a.swept() << " and " << b.swept();
    }
}

TEST(Ccgrid2019, NamesTheStatementsThatTheFormulasDoNotLeadTo) {
  ASSERT_EQ(slides().conclusions.size(), 5u);
  EXPECT_THAT(slides().conclusions[0].statement, HasSubstr("Inception v3"));
  EXPECT_EQ(slides().conclusions[0].verdict, Verdict::no) << slides().conclusions[0].found;
  EXPECT_EQ(slides().conclusions[1].verdict, Verdict::open) << slides().conclusions[1].found;
  EXPECT_EQ(slides().conclusions[2].verdict, Verdict::yes) << slides().conclusions[2].found;
  EXPECT_EQ(slides().conclusions[3].verdict, Verdict::yes) << slides().conclusions[3].found;
  EXPECT_EQ(slides().conclusions[4].verdict, Verdict::yes) << slides().conclusions[4].found;
}

TEST(Ccgrid2019, FusionSavesTheLatencyOfManyRings) {
  const auto at = [](Method method, std::int64_t bytes) {
    for (const FusionRow& row : slides().fusions)
      if (row.network == "resnet50_v2" && row.method == method && row.bytes == bytes) return row.time;
    throw std::out_of_range("no such row");
  };
  EXPECT_NEAR((at(Method::bkt, 0).communication - at(Method::bkt, 1'024'000'000).communication) * 1e3, 53, 1e-6) << "53 times 2Pα";
  EXPECT_LT(at(Method::bkt, 16'000'000).communication, 0.3 * at(Method::bkt, 0).communication);
}

TEST(Ccgrid2019, CostsTheSchedulesBesideTheirClosedForms) {
  int compared = 0;
  for (const ScheduleRow& row : slides().schedules) {
    EXPECT_EQ(row.processes, 1000);
    if (row.algorithm != "ring" && row.algorithm != "torus2d") continue;
    EXPECT_NEAR(row.steps_s / *row.closed_s, 1, 1e-3) << row.network << " " << row.algorithm;
    ++compared;
  }
  EXPECT_EQ(compared, 2 * 4);
}

TEST(Ccgrid2019, OfOtherClustersAndNetworks) {
  for (const std::string key : {"p100", "laptop", "two_cores"}) {
    const Study study = run_ccgrid2019({.cluster = find_cluster(key), .networks = {"lenet5", "gpt"}, .batch = 7});
    EXPECT_FALSE(study.schedules.empty());
    for (const StepRow& step : study.steps) EXPECT_TRUE(std::isfinite(step.time.overlapped) && step.time.overlapped > 0) << key;
  }
  EXPECT_THAT(message_of<ConfigError>([] { run_ccgrid2019({.cluster = find_cluster("skylake"), .networks = {"vgg61"}}); }),
              HasSubstr("'vgg16'"));
}

}  // namespace
}  // namespace paceline::perf
