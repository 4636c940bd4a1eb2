// Shape inference: what every kind of layer makes of its input, what it costs, and what it refuses.
#include "paceline/graph/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Layer layer(Kind kind, std::vector<int> inputs = {0}, std::string name = "x") {
  Layer result;
  result.name = std::move(name);
  result.kind = kind;
  result.inputs = std::move(inputs);
  return result;
}

Layer conv(std::int64_t channels, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  Layer result = layer(Kind::conv);
  result.channels = channels;
  result.kernel_h = result.kernel_w = kernel;
  result.padding_h = result.padding_w = padding;
  result.stride = stride;
  return result;
}

Layer pool(Kind kind, std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0, bool ceil_mode = false) {
  Layer result = conv(0, kernel, stride, padding);
  result.kind = kind;
  result.ceil_mode = ceil_mode;
  return result;
}

/// The layer as the graph holds it after an input of this shape.
Layer after(Shape input, Layer added) {
  Graph graph("test", std::move(input), 10);
  return graph.layers()[graph.append(std::move(added))];
}

std::string refusal(Shape input, Layer added) {
  try {
    after(std::move(input), std::move(added));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Infer, ConvolutionShapeAndCost) {
  const Layer stem = after({3, 224, 224}, conv(64, 7, 2, 3));
  EXPECT_EQ(stem.output, (Shape{64, 112, 112}));
  EXPECT_EQ(stem.parameters, 64 * 3 * 49 + 64);
  EXPECT_EQ(stem.macs, 64LL * 112 * 112 * 3 * 49);
  EXPECT_EQ(stem.activation_bytes, 4 * 64 * 112 * 112);
  EXPECT_EQ(stem.gradient_bytes, 4 * stem.parameters);
}

TEST(Infer, GroupsDivideWeightsAndMacs) {
  Layer depthwise = conv(32, 3, 1, 1);
  depthwise.groups = 32;
  depthwise.bias = false;
  const Layer made = after({32, 8, 8}, depthwise);
  EXPECT_EQ(made.parameters, 32 * 9);
  EXPECT_EQ(made.macs, 32 * 64 * 9);
}

TEST(Infer, KernelsNeedNotBeSquare) {
  Layer row = conv(8, 1, 1, 0);
  row.kernel_w = 7;
  row.padding_w = 3;
  EXPECT_EQ(after({4, 17, 17}, row).output, (Shape{8, 17, 17}));
  row.padding_w = 0;
  EXPECT_EQ(after({4, 17, 17}, row).output, (Shape{8, 17, 11}));
}

TEST(Infer, PoolsRoundDownUnlessToldToRoundUp) {
  EXPECT_EQ(after({6, 7, 8}, pool(Kind::max_pool, 2, 2)).output, (Shape{6, 3, 4}));
  EXPECT_EQ(after({6, 7, 8}, pool(Kind::max_pool, 2, 2, 0, true)).output, (Shape{6, 4, 4}));
  EXPECT_EQ(after({6, 112, 112}, pool(Kind::avg_pool, 3, 2, 1)).output, (Shape{6, 56, 56}));
  // A window that would begin behind the image does not count, even when rounding up.
  EXPECT_EQ(after({1, 4, 4}, pool(Kind::max_pool, 2, 3, 1, true)).output, (Shape{1, 2, 2}));
  EXPECT_EQ(after({1, 3, 3}, pool(Kind::max_pool, 1, 2, 0, true)).output, (Shape{1, 2, 2}));
}

TEST(Infer, GlobalPoolMakesAGivenPicture) {
  EXPECT_EQ(after({512, 7, 9}, layer(Kind::global_pool)).output, (Shape{512, 1, 1}));
  Layer adaptive = layer(Kind::global_pool);
  adaptive.pooled_h = adaptive.pooled_w = 6;
  EXPECT_EQ(after({256, 13, 13}, adaptive).output, (Shape{256, 6, 6}));
}

TEST(Infer, FullyConnectedActsOnTheLastDim) {
  Layer fc = layer(Kind::fc);
  fc.channels = 10;
  const Layer vector = after({84}, fc), sequence = after({16, 84}, fc);
  EXPECT_EQ(vector.output, (Shape{10}));
  EXPECT_EQ(vector.parameters, 850);
  EXPECT_EQ(vector.macs, 840);
  EXPECT_EQ(sequence.output, (Shape{16, 10}));
  EXPECT_EQ(sequence.parameters, 850);
  EXPECT_EQ(sequence.macs, 16 * 840);
}

TEST(Infer, ElementwiseKindsKeepTheShapeAndCostNothing) {
  for (Kind kind : {Kind::relu, Kind::relu6, Kind::gelu, Kind::tanh, Kind::sigmoid, Kind::dropout, Kind::lrn}) {
    const Layer made = after({3, 5, 7}, layer(kind));
    EXPECT_EQ(made.output, (Shape{3, 5, 7})) << name_of(kind);
    EXPECT_EQ(made.parameters + made.macs, 0) << name_of(kind);
    EXPECT_EQ(made.activation_bytes, 4 * 3 * 5 * 7) << name_of(kind);
  }
}

TEST(Infer, NormsCountNoStatistics) {
  EXPECT_EQ(after({64, 5, 5}, layer(Kind::batch_norm)).parameters, 128);
  EXPECT_EQ(after({64}, layer(Kind::batch_norm)).parameters, 128);
  EXPECT_EQ(after({16, 768}, layer(Kind::layer_norm)).parameters, 1536);
  Layer unscaled = layer(Kind::batch_norm);
  unscaled.scale = false;
  EXPECT_EQ(after({64, 5, 5}, unscaled).parameters, 64);
}

TEST(Infer, FlattenAndLoss) {
  EXPECT_EQ(after({16, 5, 5}, layer(Kind::flatten)).output, (Shape{400}));
  EXPECT_EQ(after({10}, layer(Kind::softmax_loss)).output, (Shape{1}));
  EXPECT_EQ(after({16, 65}, layer(Kind::softmax_loss)).output, (Shape{1}));
}

TEST(Infer, EmbeddingHoldsTokensAndPositions) {
  Layer embedding = layer(Kind::embedding);
  embedding.channels = 32;
  embedding.vocabulary = 65;
  EXPECT_EQ(after({16}, embedding).parameters, 65 * 32);
  embedding.positions = 16;
  const Layer made = after({16}, embedding);
  EXPECT_EQ(made.output, (Shape{16, 32}));
  EXPECT_EQ(made.parameters, (65 + 16) * 32);
  EXPECT_EQ(made.macs, 0);
}

TEST(Infer, AttentionCostsProjectionsAndBothProducts) {
  Layer attention = layer(Kind::attention);
  attention.heads = 4;
  const Layer made = after({16, 32}, attention);
  EXPECT_EQ(made.output, (Shape{16, 32}));
  EXPECT_EQ(made.parameters, 3 * 32 * 32 + 3 * 32 + 32 * 32 + 32);
  EXPECT_EQ(made.macs, 16 * 32 * 3 * 32 + 16 * 32 * 32 + 2 * 16 * 16 * 32);
}

TEST(Infer, AddAndConcatJoinLayers) {
  Graph graph("test", {3, 8, 8}, 10);
  graph.append(conv(5, 3, 1, 1));
  EXPECT_EQ(graph.layers()[graph.append(layer(Kind::concat, {0, 1, 0}, "joined"))].output, (Shape{11, 8, 8}));
  EXPECT_EQ(graph.layers()[graph.append(layer(Kind::add, {0, 0}, "sum"))].output, (Shape{3, 8, 8}));
  EXPECT_THROW(graph.append(layer(Kind::add, {0, 1}, "unequal")), ConfigError);
  EXPECT_EQ(graph.layers().size(), 4u) << "a refused layer leaves the graph as it was";
}

TEST(Infer, RefusalsNameTheLayerAndWhy) {
  EXPECT_THAT(refusal({3, 4, 4}, conv(8, 7, 1, 0)), HasSubstr("layer 'x' (conv): a kernel of 7 does not fit into a side of 4"));
  EXPECT_THAT(refusal({32}, conv(8, 3, 1, 1)), HasSubstr("takes an image, but its input is 32"));
  EXPECT_THAT(refusal({3, 4, 4}, conv(8, 3, 0, 1)), HasSubstr("stride cannot be 0"));
  EXPECT_THAT(refusal({3, 4, 4}, conv(0, 3, 1, 1)), HasSubstr("channels cannot be 0"));
  EXPECT_THAT(refusal({3, 4, 4}, conv(8, 3, 1, -1)), HasSubstr("padding_h cannot be -1"));
  Layer grouped = conv(8, 3, 1, 1);
  grouped.groups = 2;
  EXPECT_THAT(refusal({3, 4, 4}, grouped), HasSubstr("groups cannot be 2"));
  EXPECT_THAT(refusal({3, 4, 4}, pool(Kind::max_pool, 2, 2, 2)), HasSubstr("padding_h cannot be 2"));
  Layer fc = layer(Kind::fc);
  fc.channels = 10;
  EXPECT_THAT(refusal({3, 4, 4}, fc), HasSubstr("flatten it first"));
  Layer attention = layer(Kind::attention);
  attention.heads = 5;
  EXPECT_THAT(refusal({16, 32}, attention), HasSubstr("5 heads do not divide 32 features"));
  Layer embedding = layer(Kind::embedding);
  embedding.channels = embedding.vocabulary = 4;
  embedding.positions = 8;
  EXPECT_THAT(refusal({16}, embedding), HasSubstr("positions cannot be 8"));
  Layer dropout = layer(Kind::dropout);
  dropout.probability = 1;
  EXPECT_THAT(refusal({16}, dropout), HasSubstr("probability cannot be 1"));
  EXPECT_THAT(refusal({16}, layer(Kind::input)), HasSubstr("one input"));
  EXPECT_THAT(refusal({16}, layer(Kind::add)), HasSubstr("two inputs or more, not 1"));
  EXPECT_THAT(refusal({16}, layer(Kind::relu, {0, 0})), HasSubstr("one input, not 2"));
  EXPECT_THAT(refusal({16}, layer(Kind::relu, {1})), HasSubstr("input 1 is not an earlier layer"));
  EXPECT_THAT(refusal({16}, layer(Kind::relu, {-1})), HasSubstr("input -1 is not an earlier layer"));
}

TEST(Infer, AbsurdSizesAreRefusedAndDoNotOverflow) {
  Layer fc = layer(Kind::fc);
  fc.channels = std::int64_t{1} << 62;
  EXPECT_THAT(refusal({1 << 19}, fc), HasSubstr("too large to count"));
  EXPECT_THAT(refusal({3, 64, 64}, conv(std::int64_t{1} << 55, 3, 1, 1)), HasSubstr("too large to count"));
  EXPECT_THAT(refusal({3, 64, 64}, conv(8, std::numeric_limits<std::int64_t>::max(), 1, 1)), HasSubstr("kernel_h cannot be"));

  Graph graph("test", {1 << 19}, 10);
  fc.channels = std::int64_t{1} << 38;  // each of these is within bounds, a few of them are not
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) {
          fc.name = std::to_string(i);
          graph.append(fc);
        }
      },
      ConfigError);
}

TEST(Graph, RefusesInputsThatAreNone) {
  EXPECT_THROW(Graph("test", {}, 10), ConfigError);
  EXPECT_THROW(Graph("test", {3, 0, 32}, 10), ConfigError);
  EXPECT_THROW(Graph("test", {3, -1, 32}, 10), ConfigError);
  EXPECT_THROW(Graph("test", {1, 3, 32, 32}, 10), ConfigError);
  EXPECT_THROW(Graph("test", {3, 32, std::numeric_limits<std::int64_t>::max()}, 10), ConfigError);
  EXPECT_THROW(Graph("test", {3, 32, 32}, 0), ConfigError);
}

TEST(Graph, NamesDiffer) {
  Graph graph("test", {16}, 10);
  graph.append(layer(Kind::relu));
  EXPECT_THROW(graph.append(layer(Kind::relu)), ConfigError);
  EXPECT_THROW(graph.append(layer(Kind::relu, {0}, "")), ConfigError);
}

TEST(Graph, ParametersBearPyTorchsNamesShapesAndOrder) {
  Graph graph("test", {4, 8, 8}, 10);
  Layer grouped = conv(6, 3, 1, 1);
  grouped.name = "conv";
  grouped.groups = 2;
  graph.append(layer(Kind::batch_norm, {graph.append(grouped)}, "bn"));

  std::vector<std::string> lines;
  for (const Parameter& p : graph.parameters())
    lines.push_back(p.name + " " + to_string(p.shape) + (p.trainable ? " trainable" : "") + (p.decay ? " decays" : ""));
  EXPECT_THAT(lines, ElementsAre("conv.weight 6x2x3x3 trainable decays", "conv.bias 6 trainable", "bn.weight 6 trainable",
                                 "bn.bias 6 trainable", "bn.running_mean 6", "bn.running_var 6"));
  EXPECT_EQ(graph.parameters()[1].layer, 1);
  EXPECT_EQ(graph.parameters()[2].layer, 2);
}

TEST(Graph, LogitsAreWhatTheLossReads) {
  Graph graph("test", {16}, 10);
  Layer fc = layer(Kind::fc);
  fc.channels = 10;
  const int logits = graph.append(fc);
  EXPECT_EQ(graph.logits(), logits);
  graph.append(layer(Kind::softmax_loss, {logits}, "loss"));
  EXPECT_EQ(graph.logits(), logits);
  EXPECT_EQ(graph.output(), (Shape{10}));
}

TEST(Graph, EveryKindHasAName) {
  for (int kind = 0; kind <= static_cast<int>(Kind::softmax_loss); ++kind) EXPECT_FALSE(name_of(static_cast<Kind>(kind)).empty());
}

}  // namespace
}  // namespace paceline::graph
