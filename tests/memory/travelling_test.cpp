// The category communication: memory of its own for what goes to other ranks or comes from them.
#include <gtest/gtest.h>

#include "paceline/graph/registry.h"
#include "paceline/memory/estimate.h"

namespace paceline::memory {
namespace {

graph::Graph blocks() {
  graph::ModelConfig config;
  config.network = "gpt", config.layers = 8, config.width = 64, config.heads = 8, config.input = {64}, config.classes = 64;
  return graph::make_graph(config);
}

TEST(Estimate, GradientsTravelFromTheArenaUnlessTheyAreRounded) {
  const graph::Graph graph = blocks();
  for (const int zero : {0, 1, 2, 3}) {
    EXPECT_EQ(estimate(graph, {.data = 2, .zero = zero}).at(0).bytes[Category::communication], 0) << zero;
    EXPECT_EQ(estimate(graph, {.data = 2, .zero = zero, .storage = 2, .product = 2}).at(0).bytes[Category::communication], 0) << zero;
    EXPECT_GT(estimate(graph, {.data = 2, .zero = zero, .bf16_gradients = true}).at(0).bytes[Category::communication], 0) << zero;
  }
}

TEST(Estimate, OneMessageAtATimeArrivesAtAStage) {
  const graph::Graph graph = blocks();
  const std::int64_t message = 2 * 64 * 64 * 4;  // of two samples: positions × width, in fp32
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"}) {
    const Plan plan{
        .pipeline = 4, .samples = 8, .micro_batches = 4, .schedule = schedule, .chunks = schedule == "interleaved_1f1b" ? 2 : 1};
    for (const RankKind& kind : estimate(graph, plan))
      EXPECT_EQ(kind.bytes[Category::communication], message) << schedule << ", " << kind.name;
  }
  EXPECT_EQ(estimate(graph, {.samples = 8}).at(0).bytes[Category::communication], 0);
}

TEST(Estimate, CountsWhatACompressorHolds) {
  const graph::Graph graph = blocks();
  const Plan plain{.data = 4, .bucket = 1 << 20};
  const std::int64_t before = estimate(graph, plain).at(0).bytes.total();
  const auto more = [&](const Compression& compression) {
    Plan plan = plain;
    plan.compression = compression;
    return estimate(graph, plan).at(0).bytes.total() - before;
  };
  EXPECT_EQ(more({.kept = 4}), 4 * graph.parameter_count());
  EXPECT_EQ(more({.codes = 1}), (1 << 20) / 4) << "of the largest bucket";
  EXPECT_EQ(more({.each = 1}), 4 * ((1 << 20) / 4)) << "of every worker";
  EXPECT_EQ(estimate(graph, {.compression = {.kept = 4}}).at(0).bytes.total() - estimate(graph, {}).at(0).bytes.total(),
            4 * graph.parameter_count())
      << "one worker may push to servers";
}

TEST(Estimate, TheCutIntoStagesLeavesRoomForWhatACompressorHolds) {
  graph::ModelConfig config;
  config.network = "vgg16";  // whose parameters are at its end, where there is little time
  const graph::Graph graph = graph::make_graph(config);
  Plan plan{.data = 2, .pipeline = 2, .compression = {.kept = 8}};
  const std::int64_t most = largest(estimate(graph, plan)).bytes.total();
  plan.limit = most - 1;
  EXPECT_LT(largest(estimate(graph, plan)).bytes.total(), most);
}

TEST(Estimate, AGpusGradientsAreOneBucketUntilUnitsAre) {
  const graph::Graph graph = blocks();
  Plan plan{.data = 4, .gpu = true, .bucket = 64 << 10, .compression = {.codes = 1}};
  EXPECT_EQ(estimate(graph, plan).at(0).bytes[Category::communication], graph.parameter_count());
  plan.zero = 2;
  EXPECT_LT(estimate(graph, plan).at(0).bytes[Category::communication], graph.parameter_count());
}

TEST(Estimate, CountsTheBuffersOfGradientsInBf16) {
  const graph::Graph graph = blocks();
  Plan plan{.data = 4, .bucket = 64 << 10, .bf16_gradients = true};
  const std::int64_t bucket = (64 << 10) / 4, unit = 12 * 64 * 64 + 13 * 64;  // elements: a block is larger
  ASSERT_GT(unit, bucket);
  EXPECT_EQ(estimate(graph, plan).at(0).bytes[Category::communication], 2 * 2 * unit + 4 * unit / 4)
      << "sent, arrived, and a quarter in fp32";
  plan.bucket = 1 << 20;
  const std::int64_t larger = (1 << 20) / 4;
  EXPECT_EQ(estimate(graph, plan).at(0).bytes[Category::communication], 4 * larger + larger);
}

}  // namespace
}  // namespace paceline::memory
