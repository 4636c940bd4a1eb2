// The roofline of the CCGRID 2019 slides: intensities by hand, work of every network, and the step times that follow.
#include "paceline/perf/roofline.h"

#include <gtest/gtest.h>

#include "paceline/graph/registry.h"
#include "paceline/perf/closed_forms.h"
#include "paceline/perf/step_time.h"

namespace paceline::perf {
namespace {

graph::Graph network(const std::string& key) {
  graph::ModelConfig config;
  config.network = key;
  return graph::make_graph(config);
}

Roofline skylake(OutputTraffic traffic = OutputTraffic::once) { return roofline_of(find_cluster("skylake").device, traffic); }

TEST(Roofline, FullBlocksLieOnBothSidesOfTheRidge) {
  const Gemm large{10000, 10000, 10000};
  EXPECT_DOUBLE_EQ(skylake().ridge(), 70);
  EXPECT_NEAR(skylake().intensity(large), 99.7, 0.05);
  EXPECT_NEAR(skylake(OutputTraffic::twice).intensity(large), 65.6, 0.05);
  EXPECT_DOUBLE_EQ(skylake().seconds(large), 2e12 / 8960e9);
  EXPECT_DOUBLE_EQ(skylake(OutputTraffic::twice).seconds(large), 2e12 / (128e9 * skylake(OutputTraffic::twice).intensity(large)));
}

TEST(Roofline, ASmallProductIsBoundByMemory) {
  const Gemm small{10, 20, 30, 4};
  EXPECT_DOUBLE_EQ(small.flops(), 4 * 12000);
  EXPECT_DOUBLE_EQ(skylake().intensity(small), 12000 / (4.0 * (200 + 300 + 600)));
  EXPECT_DOUBLE_EQ(skylake().seconds(small), 4 * 4.0 * 1100 / 128e9);
}

TEST(Work, OfEveryNetworkHasItsMacsAndParameters) {
  for (const auto& row : graph::networks()) {
    const graph::Graph graph = network(std::string(row.key));
    double forward = 0, gradient = 0, weights = 0;
    std::int64_t parameters = 0;
    const std::vector<LayerWork> work = work_of(graph, 3);
    for (const LayerWork& layer : work) {
      forward += layer.flops(Phase::forward), gradient += layer.flops(Phase::gradient), weights += layer.flops(Phase::weights);
      parameters += layer.parameters;
    }
    EXPECT_DOUBLE_EQ(forward, 2.0 * 3 * static_cast<double>(graph.macs())) << row.key;
    EXPECT_EQ(parameters, graph.parameter_count()) << row.key;
    if (row.key == "gpt") {
      EXPECT_DOUBLE_EQ(gradient + weights, 2 * forward);
    } else {
      EXPECT_DOUBLE_EQ(weights, forward) << row.key;
      EXPECT_DOUBLE_EQ(gradient, forward - work.front().flops(Phase::forward)) << row.key << ": not of the samples";
    }
  }
}

TEST(Work, OfExpertsHasTheirMacs) {
  graph::ModelConfig config;
  config.network = "gpt", config.experts = 4;
  const graph::Graph graph = graph::make_graph(config);
  double forward = 0, backward = 0;
  for (const LayerWork& layer : work_of(graph, 3))
    forward += layer.flops(Phase::forward), backward += layer.flops(Phase::gradient) + layer.flops(Phase::weights);
  EXPECT_DOUBLE_EQ(forward, 2.0 * 3 * static_cast<double>(graph.macs()));
  EXPECT_DOUBLE_EQ(backward, 2 * forward);
}

// A convolution of 3×3 from 2×8×8 to 5×8×8, two samples, by hand.
TEST(Work, OfAConvolutionCountsRealTensors) {
  graph::Graph graph("x", {2, 8, 8}, 10);
  graph::Layer conv{.name = "conv", .kind = graph::Kind::conv, .inputs = {0}, .output = {}, .channels = 5};
  conv.kernel_h = conv.kernel_w = 3, conv.padding_h = conv.padding_w = 1;
  graph.append(conv);
  const LayerWork work = work_of(graph, 2).front();
  const Gemm forward = work.of(Phase::forward).front(), weights = work.of(Phase::weights).front();
  EXPECT_EQ(forward, (Gemm{5, 2 * 64, 2 * 9}));
  EXPECT_EQ(weights, (Gemm{5, 2 * 9, 2 * 64}));
  EXPECT_TRUE(work.of(Phase::gradient).empty());
  const double elements = 2 * 5 * 64 + 2 * 2 * 64 + 5 * 2 * 9, flops = 2.0 * 5 * 128 * 18;
  EXPECT_DOUBLE_EQ(intensity_of({work}, Phase::forward, skylake()).whole, flops / (4 * elements));
  EXPECT_DOUBLE_EQ(intensity_of({work}, Phase::forward, skylake(OutputTraffic::twice)).whole, flops / (4 * (elements + 2 * 5 * 64)));
  EXPECT_DOUBLE_EQ(intensity_of({work}, Phase::forward, skylake()).memory_bound, 1);
}

struct Figure {
  std::string network;
  Method method;
  double compute, communication, overlapped;  // ms
};
void PrintTo(const Figure& figure, std::ostream* out) { *out << figure.network << " " << name_of(figure.method); }

class Regression : public testing::TestWithParam<Figure> {};

// The reference figures of the slides' model: 60 samples a process, 1000 processes, a star, 8,960 Gflop/s.
TEST_P(Regression, OfTheSlidesModel) {
  const Figure& expected = GetParam();
  const Interconnect net = interconnect_of(find_cluster("skylake"), Topology::star, 1000);
  const StepTime step = step_time(layer_times(work_of(network(expected.network), 60), skylake()), [&](std::int64_t elements) {
    return allreduce_seconds(expected.method, net, 4.0 * static_cast<double>(elements));
  });
  EXPECT_NEAR(step.compute * 1e3, expected.compute, 0.5);
  EXPECT_NEAR(step.communication * 1e3, expected.communication, 0.5);
  EXPECT_NEAR(step.overlapped * 1e3, expected.overlapped, 0.5);
}

INSTANTIATE_TEST_SUITE_P(Ccgrid, Regression,
                         testing::Values(Figure{"resnet50_v2", Method::bkt, 229, 62, 230},
                                         Figure{"alexnet_ungrouped", Method::mst, 52, 200, 218},
                                         Figure{"alexnet_ungrouped", Method::bkt, 52, 28, 53}, Figure{"vgg16", Method::bkt, 825, 60, 826}),
                         [](const auto& figure) { return figure.param.network + "_" + std::string(name_of(figure.param.method)); });

// Two layers by hand: forward 1 + 2, backward of the second 3 + 4, of the first 5.
TEST(StepTime, OverlapsAllreducesWithTheBackwardPass) {
  const LayerTime layers[] = {{1, 0, 5, 10}, {2, 3, 4, 30}};
  const auto seconds = [](std::int64_t elements) { return static_cast<double>(elements) / 10 + 1; };
  const StepTime each = step_time(layers, seconds);
  EXPECT_DOUBLE_EQ(each.compute, 15);
  EXPECT_DOUBLE_EQ(each.communication, 4 + 2);
  EXPECT_DOUBLE_EQ(each.overlapped, 15 + 2) << "the second layer's runs from 10 to 14";
  EXPECT_DOUBLE_EQ(each.sequential(), 21);
  const StepTime together = step_time(layers, seconds, 31);
  EXPECT_DOUBLE_EQ(together.communication, 5);
  EXPECT_DOUBLE_EQ(together.overlapped, 20);
  EXPECT_DOUBLE_EQ(step_time(layers, seconds, 30).communication, 6) << "30 elements have come together after the second layer";
}

TEST(StepTime, WaitsForTheNetworkWhereItIsSlow) {
  const LayerTime layers[] = {{1, 0, 1, 1}, {1, 1, 1, 1}};
  const StepTime step = step_time(layers, [](std::int64_t) { return 10.0; });
  EXPECT_DOUBLE_EQ(step.overlapped, 4 + 20) << "from the end of the second layer's backward pass on, one after the other";
}

}  // namespace
}  // namespace paceline::perf
