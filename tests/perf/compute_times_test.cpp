// Seconds of computation: by roofline against sums over layers, from a profile against its table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/units.h"
#include "paceline/perf/coding.h"
#include "paceline/perf/profile_times.h"
#include "paceline/perf/roofline.h"
#include "paceline/perf/step_time.h"
#include "paceline/perf/uncertainty.h"
#include "tests/message_of.h"
#include "tests/perf/hand_programs.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using Work = Action::Work;

graph::Graph graph_of(const std::string& key, std::int64_t layers = 2) {
  graph::ModelConfig config;
  config.network = key;
  if (key == "gpt") config.layers = layers, config.width = 64, config.heads = 4, config.input = {32}, config.classes = 64;
  return graph::make_graph(config);
}
int units_in(const graph::Graph& graph) { return static_cast<int>(graph::units_of(graph).size()); }

/// A device on which bytes cost nothing: what is left are the products.
Device products_only() {
  Device device = find_cluster("skylake").device;
  device.memory_bandwidth.value = 1e30;
  return device;
}

TEST(RooflineTimes, OfProductsAreTheirFlops) {
  for (const char* network : {"resnet50_v2", "vgg16", "gpt"}) {
    const graph::Graph graph = graph_of(network);
    const RooflineTimes times(graph, products_only());
    const int units = units_in(graph);
    double forward = 0, gradient = 0, weights = 0;
    for (const LayerWork& layer : work_of(graph, 4))
      forward += layer.flops(Phase::forward), gradient += layer.flops(Phase::gradient), weights += layer.flops(Phase::weights);
    const double rate = products_only().flops.value;
    EXPECT_NEAR(times.seconds(pass_of(Work::forward, 0, units), 4), forward / rate, 1e-9 * forward / rate) << network;
    EXPECT_NEAR(times.seconds(pass_of(Work::input_gradients, 0, units), 4), gradient / rate, 1e-9 * gradient / rate) << network;
    EXPECT_NEAR(times.seconds(pass_of(Work::weight_gradients, 0, units), 4), weights / rate, 1e-9 * weights / rate) << network;
    double parts = 0;
    for (int unit = 0; unit < units; ++unit) parts += times.seconds(pass_of(Work::backward, unit, unit + 1), 4);
    EXPECT_NEAR(parts, (gradient + weights) / rate, 1e-9 * parts) << network;
  }
}

TEST(RooflineTimes, CountWhatOnlyMovesBytes) {
  graph::Graph graph("x", {4, 8, 8}, 10);
  graph.append({.name = "relu", .kind = graph::Kind::relu, .inputs = {0}, .output = {}});
  Device device = find_cluster("skylake").device;
  const double tensor = 3 * 4 * 64 * 4 / device.memory_bandwidth.value;
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device).seconds(pass_of(Work::forward, 0, 1), 3), 2 * tensor);
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device).seconds(pass_of(Work::backward, 0, 1), 3), 3 * tensor);
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device, {.precision = Precision::bf16}).seconds(pass_of(Work::forward, 0, 1), 3), tensor);
  device.launch = {1, Source::measured};
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device).seconds(pass_of(Work::forward, 0, 1), 3), 1) << "longer than the bytes take";
}

Doubt doubt_of(const ComputeTimes& times, std::int64_t samples) { return times.doubt({&samples, 1}); }

TEST(RooflineTimes, TakeTheMeasuredSpeedOfASize) {
  graph::Graph graph("x", {100}, 10);
  graph.append({.name = "fc", .kind = graph::Kind::fc, .inputs = {0}, .output = {}, .channels = 50});
  Device device = products_only();
  device.flops = {1e9, Source::measured};
  device.products = {.points = {{1e3, 0.1}, {1e5, 0.5}}, .source = Source::measured};
  const RooflineTimes times(graph, device);
  EXPECT_DOUBLE_EQ(times.seconds(pass_of(Work::forward, 0, 1), 1), 2 * 50 * 100 / (1e9 * 0.3)) << "10⁴ flops lie half way";
  EXPECT_DOUBLE_EQ(doubt_of(times, 1).share, 0.05);
  EXPECT_TRUE(doubt_of(times, 1).notes.empty());
  EXPECT_DOUBLE_EQ(times.seconds(pass_of(Work::forward, 0, 1), 1000), 2 * 50 * 100 * 1000 / (1e9 * 0.5));
  EXPECT_GT(doubt_of(times, 1000).share, 0.2) << "ten Mflop are more than was measured";
  EXPECT_THAT(doubt_of(times, 1000).notes, testing::ElementsAre(testing::HasSubstr("not measured")));
  EXPECT_DOUBLE_EQ(doubt_of(times, 1).share, 0.05) << "whatever else was asked";
  EXPECT_TRUE(doubt_of(times, 1).notes.empty());
  device.products = {};
  EXPECT_THAT(doubt_of(RooflineTimes(graph, device), 1).notes, testing::ElementsAre(testing::HasSubstr("paceline probe")));
  EXPECT_GT(doubt_of(RooflineTimes(graph, device), 1).share, 0.2);
}

TEST(RooflineTimes, TheAssumedPeaksOfGpusAreReachable) {
  constexpr std::int64_t kSide = 8192;
  graph::Graph graph("x", {kSide}, 10);
  graph.append({.name = "fc", .kind = graph::Kind::fc, .inputs = {0}, .output = {}, .channels = kSide});
  for (const char* cluster : {"v100", "h100", "h200"})
    for (const Precision precision : kPrecisions) {
      const Device device = find_cluster(cluster).device;
      const double peak = device.speed(precision).flops.value, flops = 2.0 * kSide * kSide * kSide;
      EXPECT_DOUBLE_EQ(RooflineTimes(graph, device, {.precision = precision}).seconds(pass_of(Work::forward, 0, 1), kSide), flops / peak)
          << cluster << " " << name_of(precision);
    }
}

TEST(RooflineTimes, RanksOfTheTensorAxisShareTheProducts) {
  const graph::Graph graph = graph_of("gpt", 4);
  const RooflineTimes whole(graph, products_only()), half(graph, products_only(), {.tensor = 2});
  for (const Work work : {Work::forward, Work::input_gradients, Work::weight_gradients}) {
    const Action blocks = pass_of(work, 1, units_in(graph) - 1);
    EXPECT_NEAR(half.seconds(blocks, 3), whole.seconds(blocks, 3) / 2, 0.01 * whole.seconds(blocks, 3)) << name_of(work);
  }
  Device memory = find_cluster("skylake").device;
  memory.flops.value = 1e30;
  const Action pass = pass_of(Work::forward, 1, 3);
  EXPECT_GT(RooflineTimes(graph, memory, {.tensor = 2}).seconds(pass, 3), 0.5 * RooflineTimes(graph, memory).seconds(pass, 3))
      << "norms and the residual stream are whole";
}

TEST(RooflineTimes, UpdatesMoveTheOptimizersBytes) {
  EXPECT_DOUBLE_EQ(update_bytes(4, 4, 2), 28) << "reads of w, g, m, v and writes of w, m, v";
  EXPECT_DOUBLE_EQ(update_bytes(4, 4, 0), 12);
  EXPECT_DOUBLE_EQ(update_bytes(2, 2, 2), 28) << "g and w of two bytes, the master read and written, both moments";
  EXPECT_DOUBLE_EQ(update_bytes(2, 4, 2), 30) << "g of four bytes";
  const graph::Graph graph = graph_of("gpt");
  Device device = products_only();
  device.update_bandwidth = {1e9, Source::measured};
  Action update{.kind = Action::Kind::compute, .work = Work::update, .elements = 1000};
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device).seconds(update, 1), 28e3 / 1e9);
  const RooflineSettings offload{.storage_bytes = 2, .offload = true};
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device, offload).seconds(update, 1), 4e3 / 16e9 + 28e3 / 40e9) << "by rules of thumb";
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device, {.storage_bytes = 2, .fp32_gradients = true}).seconds(update, 1), 30e3 / 1e9);
  device.host_link = {1e6, Source::measured}, device.host_updates = {2e6, Source::spec};
  EXPECT_DOUBLE_EQ(RooflineTimes(graph, device, offload).seconds(update, 1), 4e3 / 1e6 + 28e3 / 2e6);
}

TEST(RooflineTimes, CodesTakeTheirTime) {
  EXPECT_DOUBLE_EQ(encode_seconds("fp16", 1000, 39e9), 4000 / 6.2e9);
  EXPECT_DOUBLE_EQ(decode_seconds("topk", 1000, 39e9), 4000 / 31e9);
  EXPECT_DOUBLE_EQ(encode_seconds("a new one", 1000, 39e9), encode_seconds("dynamic8", 1000, 39e9));  // the slowest of all
}

ProfileTable table_for(const graph::Graph& graph) {
  ProfileTable table;
  for (int unit = 0; unit < units_in(graph); ++unit) {
    UnitProfile profile{.name = std::to_string(unit), .parameters = 1};
    const double base = 1 + unit;
    for (const std::int64_t samples : {8, 32})
      profile.seconds[samples] = {.forward = base * static_cast<double>(samples), .backward = 3 * base * static_cast<double>(samples)};
    table.units.push_back(profile);
  }
  table.update_s = {{"adam", 0.25}};
  table.around_s = {{8, 1}, {32, 1}};
  return table;
}

TEST(ProfileTimes, AreSumsOverUnits) {
  const graph::Graph graph = graph_of("gpt");
  const ProfileTable table = table_for(graph);
  const ProfileTimes times(graph, table, "adam", products_only());
  EXPECT_DOUBLE_EQ(times.seconds(pass_of(Work::forward, 1, 3), 8), (2 + 3) * 8);
  EXPECT_DOUBLE_EQ(times.seconds(pass_of(Work::backward, 0, 1), 20), 3 * 20) << "on the line between 8 and 32";
  EXPECT_DOUBLE_EQ(times.seconds({.kind = Action::Kind::compute, .work = Work::update, .elements = 8}, 1), 2);
  EXPECT_TRUE(doubt_of(times, 8).notes.empty());
  EXPECT_THAT(doubt_of(times, 64).notes, testing::ElementsAre(testing::HasSubstr("64")));
  EXPECT_GT(doubt_of(times, 64).share, doubt_of(times, 8).share);
  EXPECT_TRUE(doubt_of(times, 8).notes.empty()) << "whatever else was asked";
}

TEST(ProfileTimes, HaveWhatAStepTakesAroundItsPassesAndTheHasteOfWholeSteps) {
  const graph::Graph graph = graph_of("gpt");
  ProfileTable table = table_for(graph);
  EXPECT_DOUBLE_EQ(ProfileTimes(graph, table, "adam", products_only()).around_seconds(20), 1);
  double pieces = 0.25 * static_cast<double>(table.units.size());  // the update
  for (std::size_t unit = 0; unit < table.units.size(); ++unit) pieces += 4 * 8 * static_cast<double>(1 + unit);
  table.around_s = {{8, -0.25 * pieces}};
  const ProfileTimes hasty(graph, table, "adam", products_only());
  EXPECT_DOUBLE_EQ(hasty.around_seconds(8), 0);
  EXPECT_DOUBLE_EQ(hasty.seconds(pass_of(Work::forward, 1, 3), 8), 0.75 * (2 + 3) * 8) << "a recorded step is faster than its pieces";
  table.around_s.clear();
  EXPECT_THAT(doubt_of(ProfileTimes(graph, table, "adam", products_only()), 8).notes, testing::SizeIs(1));
}

TEST(ProfileTimes, OfAnotherNumberOfWorkersAreLessSure) {
  const graph::Graph graph = graph_of("gpt");
  ProfileTable table = table_for(graph);
  table.workers = 1, table.threads = 2;
  const ProfileTimes same(graph, table, "adam", products_only(), {}, 1), other(graph, table, "adam", products_only(), {}, 2);
  EXPECT_TRUE(doubt_of(same, 8).notes.empty());
  EXPECT_THAT(doubt_of(other, 8).notes, testing::ElementsAre(testing::AllOf(testing::HasSubstr("1 worker"), testing::HasSubstr("2 threads"),
                                                                            testing::HasSubstr("paceline profile gpt --workers 2"))));
  EXPECT_DOUBLE_EQ(doubt_of(other, 8).share, doubt_of(same, 8).share + kOutside);
  EXPECT_DOUBLE_EQ(other.seconds(pass_of(Work::forward, 1, 3), 8), same.seconds(pass_of(Work::forward, 1, 3), 8));
  Device gpu = products_only();
  gpu.kind = "gpu";
  EXPECT_TRUE(doubt_of(ProfileTimes(graph, table, "adam", gpu, {}, 8), 8).notes.empty()) << "each worker has one of its own";
}

TEST(ProfileTimes, OfATensorAxisTakeTheRooflinesShare) {
  const graph::Graph graph = graph_of("gpt", 4);
  const ProfileTable table = table_for(graph);
  const ProfileTimes half(graph, table, "adam", products_only(), {.tensor = 2});
  EXPECT_NEAR(half.seconds(pass_of(Work::forward, 1, 2), 8), 2 * 8 / 2.0, 0.2);
  EXPECT_FALSE(doubt_of(half, 8).notes.empty());
}

TEST(ProfileTimes, RefuseAnotherNetworkAndAnUnknownOptimizer) {
  const graph::Graph graph = graph_of("gpt"), other = graph_of("gpt", 8);
  const ProfileTable table = table_for(graph);
  EXPECT_THAT(message_of<ConfigError>([&] { ProfileTimes(other, table, "adam", products_only()); }),
              testing::HasSubstr("paceline profile gpt"));
  EXPECT_THROW(ProfileTimes(graph, table, "sgd", products_only()), ConfigError);
}

}  // namespace
}  // namespace paceline::perf
