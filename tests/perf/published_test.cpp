// What others published, from presets and formulas: Horovod's scaling, and the throughputs of one GPU that it starts from.
#include <gtest/gtest.h>

#include "paceline/graph/builder.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/units.h"
#include "paceline/perf/roofline_times.h"
#include "paceline/perf/step_cost.h"
#include "tests/perf/hand_programs.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using schedule::Program;
using Work = Action::Work;

/// ResNet-101, which the registry does not have: 44,549,160 parameters.
graph::Graph resnet101() {
  graph::ModelConfig config;
  config.network = "resnet101";
  graph::Builder net(config, {3, 224, 224}, 1000);
  const auto conv = [&](const std::string& name, std::int64_t width, std::int64_t kernel, std::int64_t stride) {
    net.conv(name, width, {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false}).bn(name + "_bn");
  };
  conv("conv1", 64, 7, 2);
  net.relu().max_pool({.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  const int blocks[] = {3, 4, 23, 3};
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      const std::int64_t width = std::int64_t{64} << stage, stride = stage > 0 && block == 0 ? 2 : 1;
      const int given = net.top();
      conv(name + ".conv1", width, 1, 1);
      net.relu();
      conv(name + ".conv2", width, 3, stride);
      net.relu();
      conv(name + ".conv3", 4 * width, 1, 1);
      const int computed = net.top();
      net.from(given);
      if (block == 0) conv(name + ".downsample", 4 * width, 1, stride);
      net.add(computed).relu();
    }
  return net.global_pool({}, "avgpool").flatten().fc("fc", 1000).finish();
}

graph::Graph published_network(const std::string& key) {
  if (key == "resnet101") return resnet101();
  graph::ModelConfig config;
  config.network = key;
  return graph::make_graph(config);
}

/// Gradients leave as soon as 64 MB of them, Horovod's fusion threshold, are there.
Program horovod_step(const graph::Graph& graph) {
  constexpr std::int64_t kFusion = 64 << 20;
  const std::vector<graph::Unit> units = graph::units_of(graph);
  Program program{pass_of(Work::forward, 0, static_cast<int>(units.size()))};
  std::int64_t waiting = 0;
  int left = 0;
  for (int unit = static_cast<int>(units.size()) - 1; unit >= 0; --unit) {
    program.push_back(pass_of(Work::backward, unit, unit + 1));
    const graph::Unit& of = units[static_cast<std::size_t>(unit)];
    for (std::size_t i = of.first; i < of.last; ++i) waiting += graph.layers()[i].parameters;
    if (waiting * 4 < kFusion && unit > 0) continue;
    const int ready = static_cast<int>(program.size()) - 1;
    program.push_back(exchange_of(Action::Exchange::allreduce, Action::Axis::data, waiting, Action::Lane::exchange, {ready}));
    program.back().algorithm = "auto";
    left = ready + 1, waiting = 0;
  }
  program.push_back(wait_for({left}));
  return program;
}

double seconds_on(const std::string& network, std::int64_t batch, int workers, const Jitter& jitter = {}) {
  const Cluster cluster = find_cluster("p100");
  const graph::Graph graph = published_network(network);
  const RooflineTimes times(graph, cluster.device, {.moments = 1});
  return cost_of(std::array{horovod_step(graph)}, {.data = workers, .samples = batch}, times, cluster, {.jitter = jitter}).seconds;
}

struct Throughput {
  std::string network;
  std::int64_t batch;
  double samples_per_s;
};

// tf_cnn_benchmarks' tables of one P100 in a DGX-1, synthetic data.
TEST(Published, ThroughputsOfOneP100) {
  for (const auto& [network, batch, rate] :
       {Throughput{"inception_v3", 64, 142}, {"resnet50_v1", 64, 219}, {"vgg16", 64, 154}, {"alexnet", 512, 2987}}) {
    const double samples_per_s = static_cast<double>(batch) / seconds_on(network, batch, 1);
    EXPECT_NEAR(samples_per_s, rate, 0.15 * rate) << network;
  }
}

struct Scaling {
  std::string network;
  double efficiency;
};
void PrintTo(const Scaling& scaling, std::ostream* out) { *out << scaling.network; }

class Horovod : public testing::TestWithParam<Scaling> {};

// Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018: 512 GPUs against one. Steps of one GPU
// that vary by 2.5% cost as much as the network there.
TEST_P(Horovod, ScalesAsPublished) {
  const auto& [network, efficiency] = GetParam();
  const Jitter jitter{.distribution = "gamma", .shape = 1600};
  EXPECT_NEAR(seconds_on(network, 64, 1) / seconds_on(network, 64, 512, jitter), efficiency, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Of, Horovod, testing::Values(Scaling{"inception_v3", 0.9}, Scaling{"resnet101", 0.9}, Scaling{"vgg16", 0.68}),
                         [](const auto& scaling) { return scaling.param.network; });

TEST(Published, ResNet101HasItsParameters) { EXPECT_EQ(resnet101().parameter_count(), 44'549'160); }

}  // namespace
}  // namespace paceline::perf
